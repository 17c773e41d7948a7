"""How long a job takes from an outage until it has caught up.

The job stands still for its outage, and works off what waited before and what arrived meanwhile
with the capacity that its load leaves:

    caught up = outage + (waiting + load x outage) / (capacity - load)

After a failure it also reads again what it had read since its last checkpoint:

    recovery = outage + load x (outage + replayed) / (capacity - load)

where `replayed` is the time since the checkpoint, s: a whole interval where the failure comes just
before the next one. Fitted to the measured recoveries of Khaos (Geldenhuys et al., FedCSIS 2022),
a free share of the interval becomes 0.9 to 1.1.

The guardrail `freeze`, the twins of guardrails and recoveries from failures share this. Others ask
another question and share `work_off_s` alone: `dsp_gym.sizing.lateness` until records are in time,
with caches that are cold at first; the policy `daedalus` for a load that changes meanwhile.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.loop.backlog import work_off_s

LEAST_SPARE = 0.005
"""Least share of its capacity that a job is assumed to spare: it does catch up."""


@njit(cache=True, nogil=True)
def caught_up_s(waiting: float, load: float, spare: float, outage_s: float) -> float:
    """Return the time from the begin of an outage until the job has caught up, s.

    Args:
        waiting: Records that wait when the outage begins, or seconds of the load.
        load: Records/s that arrive; 1 where `waiting` counts in seconds of the load.
        spare: Capacity above the load, in the unit of the load.
        outage_s: Time in which nothing is read, s.

    Returns:
        Seconds; infinite without spare capacity.
    """
    return outage_s + work_off_s(waiting + outage_s * load, spare)


def recovery_s(
    load: ArrayLike, capacity: ArrayLike, outage_s: ArrayLike, replayed_s: ArrayLike
) -> Floats:
    """Return the time from a failure until the job has caught up, s; arguments broadcast.

    Args:
        load: Records/s that arrive.
        capacity: Records/s that the job carries, above the load.
        outage_s: Time from the failure until the job reads again, its detection included, s.
        replayed_s: Time since the last checkpoint at the failure, s.

    Returns:
        Seconds.

    >>> float(recovery_s(10_000, 40_000, 70, 30).round(1))
    103.3
    """
    parts = np.broadcast_arrays(load, capacity, outage_s, replayed_s)
    given = np.array([np.asarray(part, float).ravel() for part in parts])
    found = np.empty(given.shape[1])
    _recoveries(given, found)
    return found.reshape(parts[0].shape)


@njit(cache=True, nogil=True)
def _recoveries(given: Floats, found: Floats) -> None:
    for i in range(len(found)):
        load, capacity, outage_s, replayed_s = given[:, i]
        spare = max(capacity - load, LEAST_SPARE * capacity)
        found[i] = caught_up_s(load * replayed_s, load, spare, outage_s)
