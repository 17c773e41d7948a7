"""How long a loop may show no sign of life before `/healthz` says that it is dead."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.scheduler import MOST_SLOW
from dsp_gym.control.serve.status import SILENT_INTERVALS

LOOK_ANSWERS = 2
"""Time limits of one look at the job: all answers of Flink, and all of Prometheus."""

PLATFORM_ANSWERS = 2
"""Time limits of what a turn asks the job's platform: who else acts, and the write or the event."""

AFTER_DECISION_S = 1.0
"""How much longer than its time limit a policy's turn takes at most, see `GuardedPolicy`."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """The longest silence of a loop whose calls all keep their time limits.

    A loop shows a sign of life when it has decided, and when its interval has passed and the
    outcome was looked at. Every call between the two has a time limit in the configuration, so a
    loop that is silent for longer than these together hangs: only then does a restart help.
    """

    interval_s: float
    look_s: float  # of one look at the job
    turn_s: float  # of a whole turn: outcome, snapshot, policies, platform

    @classmethod
    def of(cls, config: RunConfig) -> Liveness:
        """Add up the time limits of a configuration.

        Returns:
            The bounds of each of its loops.
        """
        answer_s = (config.where.kubernetes or config.where).timeout_s
        look_s = LOOK_ANSWERS * answer_s
        decided_s = len(config.all_policies) * (config.decide_timeout_s + AFTER_DECISION_S)
        turn_s = 2 * look_s + PLATFORM_ANSWERS * answer_s + decided_s
        return cls(config.interval_s, look_s, turn_s)

    def longest_s(self, loops: int = 1) -> float:
        """Find how long a loop may be silent.

        Args:
            loops: of the process; while all their servers hang they take turns in few threads.

        Returns:
            Two intervals, or more where the time limits take longer.
        """
        others = max(0, math.ceil(loops / MOST_SLOW) - 1)
        waits_s = self.interval_s + others * self.turn_s + self.look_s
        return max(SILENT_INTERVALS * self.interval_s, waits_s, self.turn_s)
