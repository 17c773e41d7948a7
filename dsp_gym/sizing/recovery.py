"""How long a job takes from a failure until it has caught up.

The job stands still for its outage, reads again what it had read since its last checkpoint, and
works off both with the capacity that its load leaves:

    recovery = outage + load x (outage + replayed) / (capacity - load)

where `replayed` is the time since the checkpoint, s: a whole interval where the failure comes just
before the next one. Fitted to the measured recoveries of Khaos (Geldenhuys et al., FedCSIS 2022),
a free share of the interval becomes 0.9 to 1.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dsp_gym.arrays import Floats

LEAST_SPARE = 0.005
"""Least share of its capacity that a job is assumed to spare: it does catch up."""


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
    load, capacity = np.asarray(load, float), np.asarray(capacity, float)
    outage_s = np.asarray(outage_s, float)
    spare = np.maximum(capacity - load, LEAST_SPARE * capacity)
    waiting = load * (outage_s + np.asarray(replayed_s, float))
    return np.asarray(outage_s + waiting / spare)
