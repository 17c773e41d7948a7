"""When the number of a job's workers last changed."""

from __future__ import annotations

import numpy as np

from baselines.workers import workers
from dsp_gym.arrays import Floats
from dsp_gym.loop.per_job_state import Kept, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology


class WorkerChanges(Kept):
    """The last change of the number of workers of every job.

    A change counts from the begin of its outage, when workers come and go, not from when the job is
    up again. A restart of the same number, such as after a failure, is no change; the start of the
    job is one, since its workers arrive then.
    """

    def __init__(self) -> None:
        self._memory = self._kept = RowMemory(
            {"seen_s": ("job", -1e18), "workers": ("job", -1), "changed_s": ("job", -1e18)}
        )

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget all rows, or only those where the mask is True."""
        self._memory.reset(jobs, mask)

    def memories(self) -> tuple[RowMemory, ...]:
        """Return the whole memory.

        Returns:
            The one memory.
        """
        return (self._memory,)

    def changed_s(self, snapshot: MetricsSnapshot) -> Floats:
        """Note the workers that run now; call it once for every snapshot.

        Returns:
            Time of the last change, (J,).
        """
        m, running, count = self._memory, snapshot.running, workers(snapshot)
        now, since = snapshot.t_s, snapshot.running_since_s
        first = m["workers"] < 0
        changed = running & (count != m["workers"])
        # An unknown outage counts as none. A change without a restart since the last snapshot is
        # dated to now.
        begun = np.fmin(since - np.nan_to_num(snapshot.outage_s), now)
        at = np.where(since > m["seen_s"], begun, now)
        at = np.where(first, np.where(np.isnan(since), -1e18, since), at)
        m["changed_s"][changed] = at[changed]
        m["workers"][running] = count[running]
        m["seen_s"][running] = now[running]
        return np.asarray(m["changed_s"])
