"""The planner's memory of each load: its last minutes, its states, its outages."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from agents.planning.laws import Laws, hear
from agents.planning.load import HISTORY, level_of, state_of
from agents.planning.value import MINUTE
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.loop.snapshot import JOB, RUNNING, SnapshotArrays
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.sizing.warming import Losses

OWN = 2880
"""Minutes of its history that a job learns from."""

SINCE_SOLVED = 120
"""Minutes kept beside them, so that values can be computed again from a saved state."""

OUTGROWN = 1.5
"""Multiple of the reference rate above which it is doubled: training loads stay below."""

_OUTAGE_GAIN = 0.3
"""Weight of a new outage in the exponential mean of those seen."""

_NOISE_MINUTES = 90
"""Minutes of its own that a load's noise is measured on."""

_LEAST_NOISE_MINUTES = 10
"""Minutes that the assumed noise counts for beside them."""

_LEAST_LEVEL = 0.05
"""Level, as a multiple of the reference, below which noise counts as a share of this one."""

_LONGEST_SAVEPOINT_S = 300.0
"""Age in seconds beyond which a checkpoint at the stop was not taken for the rescale."""


class Watched(NamedTuple):
    """Memory of each job, (J,)."""

    minutes: Ints  # minutes of load seen
    reference_per_s: Floats  # load that counts as 1
    seen_s: Floats  # time of the last snapshot
    left_s: Floats  # seconds not yet part of a minute
    left_records: Floats
    blind_s: Floats  # since the load was last measured
    outage_s: Floats  # expected outage of a rescale
    noise: Floats  # standard deviation of the load about its level, as a share of it
    since_s: Floats  # when the job last became RUNNING
    solved_s: Floats  # time of the values, NaN: none
    solved_minutes: Ints  # minutes of load seen by then
    solved_outage_s: Floats
    solved_lost_s: Floats
    solved_noise: Floats
    solved_reference_per_s: Floats


class Minutes(NamedTuple):
    """The last minutes of each load, oldest first, (J, HISTORY)."""

    load_per_s: Floats


class Own(NamedTuple):
    """The states each load went through, oldest first; -1: before it began."""

    state: Ints  # (J, OWN + SINCE_SOLVED)


class Heard(NamedTuple):
    """The evidence for each law of the load: logarithms of its odds, 0 for the likeliest."""

    evidence: Floats  # (J, K)
    solved_evidence: Floats  # (J, K) when the values were computed


class Recall(NamedTuple):
    """The whole memory of the loads, for compiled code."""

    watch: Watched
    minutes: Minutes
    own: Own
    heard: Heard
    losses: Losses


class RecallTerms(NamedTuple):
    """Constants of the memory."""

    noise: float  # of a load before any of its minutes
    memory_h: float  # hours after which evidence for a law counts for a third


@direct
@njit(cache=True, nogil=True)
def remember(
    seen: SnapshotArrays,
    arrived: Floats,
    declared_s: Floats,
    laws: Handle[Laws],
    terms: RecallTerms,
    recall: Handle[Recall],
) -> None:
    """Record the arrivals since the last snapshot, and the length of the last outage.

    Before the first outage, an outage is assumed to last as declared, which depends on the job's
    state size. It begins when the sources stop reading: with the rescale's savepoint, where its
    time is known.

    Args:
        seen: The snapshot.
        arrived: (J,) arrivals since the last snapshot, records/s; NaN: unknown.
        declared_s: (J,) outage by the job file, in seconds.
        laws: Laws of the load that its minutes are evidence for.
        terms: Constants of the memory.
        recall: The memory; changed in place.
    """
    r, known = recall.arrays, laws.arrays
    w = r.watch
    now, since = seen.job[JOB.t_s], seen.job[JOB.running_since_s]
    for j in range(arrived.shape[0]):
        outage = seen.job[JOB.outage_s, j]
        unread = since[j] - seen.job[JOB.resumed_from_s, j]
        # Reading stopped at the savepoint the job resumed from; an older checkpoint is no sign of
        # that.
        if outage < unread <= outage + _LONGEST_SAVEPOINT_S:
            outage = unread
        is_declared = math.isnan(outage) and seen.status[j] == RUNNING
        if is_declared or math.isnan(w.outage_s[j]):
            w.outage_s[j] = declared_s[j]
        # running_since_s changes with every restart: each outage enters the mean once.
        elif since[j] != w.since_s[j] and not math.isnan(w.since_s[j]) and outage > 0.0:
            w.outage_s[j] += _OUTAGE_GAIN * (outage - w.outage_s[j])
        w.since_s[j] = since[j]

        elapsed = 0.0 if math.isnan(w.seen_s[j]) else now[j] - w.seen_s[j]
        w.seen_s[j] = now[j]
        rate = arrived[j]
        if math.isnan(rate):
            w.blind_s[j] += elapsed
            if w.minutes[j] == 0:
                continue
            rate = r.minutes.load_per_s[j, HISTORY - 1]  # the last minute's rate stands in
        else:
            w.blind_s[j] = 0.0
        w.left_s[j] += elapsed
        w.left_records[j] += elapsed * rate
        complete = round(w.left_s[j] / MINUTE)
        if complete > 0:
            mean = w.left_records[j] / w.left_s[j]
            w.left_s[j], w.left_records[j] = 0.0, 0.0
            # A late snapshot fills several minutes with their mean.
            for _ in range(min(complete, HISTORY)):
                _append(r, j, mean, known, terms)


@njit(cache=True, nogil=True)
def _append(r: Recall, j: int, load_per_s: float, known: Laws, terms: RecallTerms) -> None:
    """Append a minute to a load's history, with the state it led to."""
    w, load, states = r.watch, r.minutes.load_per_s[j], r.own.state[j]
    for i in range(HISTORY - 1):
        load[i] = load[i + 1]
    load[HISTORY - 1] = load_per_s
    w.minutes[j] += 1
    recent = load[HISTORY - min(w.minutes[j], HISTORY) :]
    level = level_of(recent / w.reference_per_s[j])
    if level > OUTGROWN:
        while level > OUTGROWN:
            level /= 2.0
            w.reference_per_s[j] *= 2.0
        states[:] = -1  # multiples of the former reference
    for i in range(states.shape[0] - 1):
        states[i] = states[i + 1]
    last = states.shape[0] - 1
    states[last] = state_of(recent / w.reference_per_s[j])
    hear(known, states[last - 1], states[last], terms.memory_h, r.heard.evidence[j])
    w.noise[j] = noise_of(recent / w.reference_per_s[j], terms.noise)


@njit(cache=True, nogil=True)
def noise_of(minutes: Floats, assumed: float) -> float:
    """Measure how far a load's minutes lie from the level that was estimated before each of them.

    The median of these distances, scaled to the standard deviation of a Gaussian: jumps of the load
    are few, and belong to its law, not to its noise.

    Args:
        minutes: (n,) load per minute as multiples of the reference, oldest first.
        assumed: Noise that is assumed before any minute, and counts for some.

    Returns:
        The standard deviation, as a share of the level.
    """
    n = minutes.shape[0]
    count = min(_NOISE_MINUTES, n - 3)
    if count <= 0:
        return assumed
    away = np.empty(count)
    for i in range(count):
        end = n - 1 - i
        level = level_of(minutes[max(0, end - 6) : end])
        away[i] = abs(minutes[end] - level) / max(level, _LEAST_LEVEL)
    measured = 1.4826 * np.median(away)
    weight = _LEAST_NOISE_MINUTES
    return math.sqrt((weight * assumed**2 + count * measured**2) / (weight + count))
