"""Whether a decision may be asked of the job now."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dsp_gym.arrays import finite
from dsp_gym.control.modes import ACTING, CanaryConfig, Mode
from dsp_gym.loop.protocols import State

_DAY_S = 86_400


class Held(NamedTuple):
    """Why nothing was asked of a job: a word for metrics, a sentence for people."""

    code: str
    reason: str


class Permission:
    """Says why a change is not asked of the job, by mode, canary, kill switch and cool-down.

    Args:
        mode: how far the acting policy may go.
        canary: which of its changes count in mode canary.
        stop_file: while it exists nothing is enacted.
        stopped: gives the reason why an operator stopped all acting, such as an annotation;
            None: not stopped.
        unsettled: says why no change may be asked for a moment; None: one may.
    """

    def __init__(
        self,
        mode: Mode = "shadow",
        canary: CanaryConfig | None = None,
        stop_file: Path | None = None,
        stopped: Callable[[], str | None] = lambda: None,
        unsettled: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.mode, self._canary = mode, canary
        self._stop_file, self._stopped, self._unsettled = stop_file, stopped, unsettled
        self._changes = 0
        self.rests_until_s, self._even_late = -math.inf, False

    @property
    def is_acting(self) -> bool:
        """Whether the mode enacts anything."""
        return self.mode in ACTING

    def pause(self) -> str | None:
        """Say why nothing may be enacted, whatever the mode; None: nothing speaks against it.

        Returns:
            The reason as a sentence; None where acting is not stopped.
        """
        if self._stop_file is not None and self._stop_file.exists():
            return f"stopped by the file {self._stop_file}"
        return self._stopped()

    def against(self, t_s: float, changes: bool, *, rescues: bool = False) -> Held | None:
        """Say why the decision of this moment is not asked of the job; None: it is.

        Called once per decision of an acting mode.

        Args:
            t_s: the time of the job, Unix seconds.
            changes: whether the decision differs from the running configuration.
            rescues: whether it gives more to a job that is late: a rest does not hold it up, unless
                the job did not run after the change that was rolled back.

        Returns:
            The reason as a word and a sentence; None where the decision may be asked of the job.
        """
        reason = self.pause()
        if reason is not None:
            return Held("paused", reason)
        if t_s < self.rests_until_s and (self._even_late or not rescues):
            left_s = self.rests_until_s - t_s
            said = f"a change was rolled back; nothing is enacted for another {left_s:.0f} s"
            return Held("rests", said)
        if changes and (reason := self._unsettled()) is not None:
            return Held("unsettled", reason)
        if changes and self.mode == "canary" and self._canary is not None:
            reason = self._not_in_canary(self._canary, t_s)
        return None if reason is None else Held("canary", reason)

    def rest(self, t_s: float, seconds: float, *, even_late: bool = False) -> None:
        """Enact nothing for that long; `even_late`: whether nothing is given to a late job, too."""
        self.rests_until_s, self._even_late = t_s + seconds, even_late

    def set_back(self, seconds: float) -> None:
        """Let a rest last as long as before, though the clock went back by so much."""
        self.rests_until_s -= seconds

    def state(self) -> State:
        """List what outlives a restart.

        Returns:
            JSON values; `restore` of them continues.
        """
        rests = finite(self.rests_until_s)
        return {"changes": self._changes, "rests_until_s": rests, "even_late": self._even_late}

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        self._changes = int(state["changes"])
        rests = state["rests_until_s"]
        self.rests_until_s = -math.inf if rests is None else float(rests)
        self._even_late = bool(state.get("even_late", False))

    def _not_in_canary(self, canary: CanaryConfig, t_s: float) -> str | None:
        spans = canary.spans_s()
        now = t_s % _DAY_S
        if spans and not any(
            begin <= now < end if begin < end else now >= begin or now < end for begin, end in spans
        ):
            return f"outside the canary's windows: {', '.join(canary.windows)} UTC"
        self._changes += 1
        if math.floor(self._changes * canary.share) == math.floor(
            (self._changes - 1) * canary.share
        ):
            return f"not in the canary's share of {100 * canary.share:g} % of the changes"
        return None
