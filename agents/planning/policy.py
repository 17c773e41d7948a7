"""Planning by value iteration as a policy, one look-ahead a minute.

The service model says what the job carries for what, the chain what its load will do, the values
what that is going to cost.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from agents.planning.chain import TABLE, pooled, read_counts, sparse
from agents.planning.load import HISTORY, STATES, level_of, levels, state_of
from agents.planning.value import MINUTE, Offer, StepPrices, minute_price, move_price, solve
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.calling import Handle, Handles, direct, handle
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import PolicyError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.row_memory import RowMemory
from dsp_gym.loop.snapshot import JOB, RUNNING, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.sizing.arrivals import Arrivals, pending_records
from dsp_gym.sizing.frontier import Frontiers, subtask_cost_per_s
from dsp_gym.sizing.lateness import IN_TIME, catch_up_s
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import Believed, ServiceModel, SizingConfig, believed

__all__ = ["MdpConfig", "MdpPolicy"]


class MdpConfig(ConfigModel):
    """The price of lateness, and what the policy starts from."""

    late_price: float = Field(
        2.5,
        ge=0,
        description="price of a late minute, in minutes of the configuration that carries the "
        "job's reference rate: the one knob between cost and lateness; 0 runs the cheapest "
        "configuration, whatever the load",
    )
    prior: Literal["job-file", "none"] = Field(
        "job-file",
        description="job-file: times per record start from the job file and are corrected by true "
        "rates; none: they are learned from true rates alone, and the policy holds until it has "
        "seen every vertex busy",
    )
    job_files: tuple[str, ...] = Field(
        (),
        description="job files to start from in place of those of the running jobs, found by their "
        "`job` name; a calibration, for instance",
    )
    transitions: str | None = Field(
        None,
        min_length=1,
        description="table of load transitions, made by `python -m agents.studies.planning "
        "table`; none: the shipped one",
    )
    rescale_price: float = Field(
        6.0,
        ge=0,
        description="price of a rescale beside its outage, in seconds of the same configuration; "
        "as the clairvoyant's",
    )
    headroom: float = Field(
        0.95,
        gt=0,
        le=1,
        description="share of a configuration's capacity that is counted on: service times vary "
        "and caches start cold",
    )
    noise: float = Field(
        0.03,
        gt=0,
        lt=1,
        description="standard deviation of the load about its level within a minute, as a share",
    )
    configurations: int = Field(
        24, ge=2, le=64, description="configurations of a job planned with, on its frontier"
    )
    horizon_h: float = Field(
        6.0, gt=0, description="prices after so many hours count for a third; a day has two turns"
    )
    neighbours: float = Field(
        40.0,
        gt=0,
        description="minutes that the transitions of neighbouring levels count for in a state",
    )
    own_weight: float = Field(
        1.0,
        ge=0,
        description="what a minute of the job's own last two days counts for against a minute of "
        "the training loads; 0: its own history is left out",
    )
    sizing: SizingConfig = Field(
        default_factory=SizingConfig, description="how times per record are learned"
    )


_OWN = 2880
"""Minutes of its own history that a job learns from."""

_SINCE_SOLVED = 120
"""Minutes kept beside them, so that the values can be computed again from a saved state."""

_AGAIN_S, _OFTEN_S = 3600.0, 600.0
"""Seconds after which values are computed anew; and if capacities have changed."""

_CHANGED = 0.04
"""Share by which a capacity has to change for that."""

_OUTGROWN = 1.5
"""Multiple of the reference rate above which it is doubled: training loads stay below."""

_BLIND_S = 600.0
"""Seconds without any measurement of the load after which the policy holds."""

_KEPT_S = 3600.0
"""Seconds that a configuration off the frontier is taken to be kept, with its extra cost."""

_OUTAGE_GAIN = 0.3
"""Weight of a new outage in the mean of those seen."""

_KEPT_VALUES = 128
"""Solutions kept: rows of one job start alike."""

_HOLD, _MOVE, _BLIND, _UNKNOWN, _DOWN = 0, 1, 2, 3, 4
_WORDS = {
    _HOLD: "hold",
    _BLIND: "hold: no measurement of the load for ten minutes",
    _UNKNOWN: "hold: some vertex has not been seen busy, and there is no job file to start from",
    _DOWN: "hold: the job is not running",
}


class Watched(NamedTuple):
    """What the policy remembers of each job, (J,)."""

    minutes: Ints  # of load seen
    reference_per_s: Floats  # load that counts as 1
    seen_s: Floats  # time of the last snapshot
    left_s: Floats  # seconds not yet part of a minute
    left_records: Floats
    blind_s: Floats  # since the load was last measured
    outage_s: Floats  # expected of a rescale
    since_s: Floats  # when the job last became RUNNING
    solved_s: Floats  # time of the values, NaN: none
    solved_minutes: Ints  # of load seen then
    solved_outage_s: Floats
    solved_reference_per_s: Floats


class Minutes(NamedTuple):
    """The last minutes of each load, oldest first, (J, HISTORY)."""

    load_per_s: Floats


class Own(NamedTuple):
    """The states each load went through, oldest first; -1: before it began."""

    state: Ints  # (J, _OWN + _SINCE_SOLVED)


class Recall(NamedTuple):
    """All that is remembered of the loads, for compiled code."""

    watch: Watched
    minutes: Minutes
    own: Own


class Solved(NamedTuple):
    """What a look-ahead needs of all jobs."""

    frontiers: Frontiers
    value: Floats  # (J, STATES, N)
    weights: Floats  # (STATES, STATES) of the training loads


class Stakes(NamedTuple):
    """`MdpConfig` as compiled code takes it."""

    terms: StepPrices  # outage and bound of no job in particular
    headroom: float
    own_weight: float


class Outlook(NamedTuple):
    """What a look-ahead found."""

    what: Ints  # (J,) _HOLD, _MOVE and so on
    load_per_s: Floats  # (J,) level
    running_per_s: Floats  # (J,) capacity of the running configuration
    wanted_per_s: Floats  # (J,) of the one chosen
    parallelism: Ints  # (J, V)
    level: Ints  # (J, V)


class MdpPolicy:
    """Plans by value iteration: money against late seconds, over the load's states."""

    Config = MdpConfig

    def __init__(self, config: MdpConfig | None = None) -> None:
        self.name = "mdp"
        self.explain = True
        self.config = c = config or MdpConfig()
        self._specs = tuple(load_job(name) for name in c.job_files)
        counts = read_counts(TABLE if c.transitions is None else Path(c.transitions))
        self._weights = pooled(counts, c.neighbours)
        self._levels = levels()
        self._arrivals = Arrivals()
        self._model = ServiceModel(c.sizing)
        self._watch = RowMemory(
            {
                "minutes": ("job", 0),
                "reference_per_s": ("job", np.nan),
                "seen_s": ("job", np.nan),
                "left_s": ("job", 0.0),
                "left_records": ("job", 0.0),
                "blind_s": ("job", 0.0),
                "outage_s": ("job", np.nan),
                "since_s": ("job", np.nan),
                "solved_s": ("job", np.nan),
                "solved_minutes": ("job", 0),
                "solved_outage_s": ("job", np.nan),
                "solved_reference_per_s": ("job", np.nan),
            }
        )
        self._minutes = RowMemory({"load_per_s": ("job", 0.0)}, depth=HISTORY)
        self._own = RowMemory({"state": ("job", -1)}, depth=_OWN + _SINCE_SOLVED)
        self._jobs: Topology | None = None
        self._prior: Prior | None = None
        self._solved: Solved | None = None
        self._handles = Handles()
        self._values: dict[bytes, Floats] = {}

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Starts anew.

        Raises:
            PolicyError: A job has no prices, or a job file taken as prior has another graph.
        """
        c = self.config
        if self._prior is None or self._jobs is not jobs:
            _refuse_free(jobs)
            filed = c.prior == "job-file"
            self._prior = Prior.of_files(jobs, self._specs) if filed else Prior.none(jobs)
        rows = np.ones(len(jobs), dtype=bool) if mask is None else mask
        self._model.reset(jobs, self._prior, mask)
        self._arrivals.reset(jobs, mask)
        for memory in (self._watch, self._minutes, self._own):
            memory.reset(jobs, mask)
        self._watch["reference_per_s"][rows] = jobs.tables.rate_per_s[jobs.row[rows]]
        if mask is None or self._solved is None:
            frontiers = Frontiers.empty(jobs, c.configurations)
            value = np.zeros((len(jobs), STATES, c.configurations))
            self._solved = Solved(frontiers, value, self._weights)
        self._solved.frontiers.size[rows] = 0
        self._jobs, self._handles = jobs, Handles()

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Takes the configuration of the least expected price.

        Returns:
            The decision, (J, V), with each job's reason.
        """
        seen, solved = snapshot.arrays, self._ready
        arrived = self._arrivals.observe(snapshot)
        self._model.observe(snapshot)
        _remember(seen, arrived, _declared_outage_s(snapshot), self._recall)
        self._plan(snapshot)
        if "solved" not in self._handles:
            self._handles["solved"] = handle(solved)
        parallelism, level = seen.parallelism.copy(), seen.memory_level.copy()
        jobs = len(snapshot)
        outlook = Outlook(
            what=np.zeros(jobs, np.int64),
            load_per_s=np.zeros(jobs),
            running_per_s=np.zeros(jobs),
            wanted_per_s=np.zeros(jobs),
            parallelism=parallelism,
            level=level,
        )
        c = self.config
        _look_ahead(
            snapshot.topology.handle,
            seen,
            self._recall,
            self._model.believed,
            self._handles["solved"],  # type: ignore[arg-type]  # stored just above
            Stakes(self._terms(0.0, 0.0), c.headroom, c.own_weight),
            outlook,
        )
        words = self._words(snapshot, outlook) if self.explain else ("",) * jobs
        return ScalingDecision(parallelism, level, words)

    def state(self) -> State:
        """Everything the next decision depends on.

        Returns:
            JSON values; the values of the decision process are computed from them.
        """
        frontiers = self._ready.frontiers
        return {
            "arrivals": self._arrivals.state(),
            "model": self._model.state(),
            "watch": self._watch.state(),
            "minutes": self._minutes.state(),
            "own": self._own.state(),
            "frontiers": {name: getattr(frontiers, name).tolist() for name in Frontiers._fields},
        }

    def restore(self, state: State) -> None:
        """Continues from the values of `state()`."""
        self._arrivals.restore(state["arrivals"])
        self._model.restore(state["model"])
        for name, memory in (
            ("watch", self._watch),
            ("minutes", self._minutes),
            ("own", self._own),
        ):
            memory.restore(state[name])
        self._handles = Handles()
        frontiers = self._ready.frontiers
        for name in Frontiers._fields:
            getattr(frontiers, name)[:] = state["frontiers"][name]
        for j in np.flatnonzero(frontiers.size > 0).tolist():
            self._solve(j)

    @property
    def _ready(self) -> Solved:
        if self._solved is None:
            raise RuntimeError("reset() comes first")
        return self._solved

    @property
    def _recall(self) -> Handle[Recall]:
        if "recall" not in self._handles:
            watch, minutes = self._watch.arrays(Watched), self._minutes.arrays(Minutes)
            self._handles["recall"] = handle(Recall(watch, minutes, self._own.arrays(Own)))
        return self._handles["recall"]  # type: ignore[return-value]  # stored just above

    def _plan(self, snapshot: MetricsSnapshot) -> None:
        """Computes frontiers and values anew where they are out of date."""
        jobs, watch = snapshot.topology, self._watch.arrays(Watched)
        now, found = snapshot.t_s, self._ready.frontiers
        age_s = np.where(np.isnan(watch.solved_s), np.inf, now - watch.solved_s)
        changed = np.zeros(len(jobs), dtype=bool)
        late = (age_s >= _OFTEN_S) & (found.size > 0)
        _compare(jobs.handle, self._model.believed, found, late, changed)
        grown = watch.solved_reference_per_s != watch.reference_per_s
        due: Bools = (found.size == 0) | (age_s >= _AGAIN_S) | (late & changed) | grown
        due &= snapshot.running & (watch.minutes > 0)
        if not due.any():
            return
        enough = 2.0 * watch.reference_per_s / self.config.headroom
        found.find(jobs, self._model, due, enough)
        for j in np.flatnonzero(due & (found.size > 0)).tolist():
            watch.solved_s[j] = now[j]
            watch.solved_minutes[j] = watch.minutes[j]
            watch.solved_outage_s[j] = watch.outage_s[j]
            watch.solved_reference_per_s[j] = watch.reference_per_s[j]
            self._solve(j)

    def _solve(self, j: int) -> None:
        """Values of one job, from its frontier and what was known when it was made."""
        watch, found = self._watch.arrays(Watched), self._ready.frontiers
        count, reference = int(found.size[j]), float(watch.solved_reference_per_s[j])
        unit = found.cost_per_s[j, found.cheapest(j, reference)]
        offer = Offer(
            found.rate_per_s[j, :count] * self.config.headroom / reference,
            found.cost_per_s[j, :count] / unit,
        )
        in_time_s = IN_TIME * float(self._slo_s[j])
        terms = self._terms(float(watch.solved_outage_s[j]), in_time_s)
        own = np.zeros(0, np.int64)
        if self.config.own_weight > 0.0:
            later = int(watch.minutes[j] - watch.solved_minutes[j])
            states = self._own.arrays(Own).state[j]
            own = states[: len(states) - later][-_OWN:]
        key = b"".join(
            (
                *(np.ascontiguousarray(part).tobytes() for part in (*offer, own)),
                repr(terms).encode(),
            )
        )
        if key not in self._values:
            if len(self._values) >= _KEPT_VALUES:
                self._values.pop(next(iter(self._values)))
            chain = sparse(self._weights, np.ascontiguousarray(own), self.config.own_weight)
            self._values[key] = solve(chain, self._levels, offer, terms)
        self._ready.value[j, :, :count] = self._values[key]

    @property
    def _slo_s(self) -> Floats:
        assert self._jobs is not None
        return np.asarray(self._jobs.facts.slo_s[self._jobs.row])

    def _terms(self, outage_s: float, in_time_s: float) -> StepPrices:
        """Prices of a job."""
        c = self.config
        return StepPrices(
            late_price=c.late_price,
            rescale_price=c.rescale_price,
            outage_s=outage_s,
            in_time_s=in_time_s,
            noise=c.noise,
            discount=math.exp(-1.0 / (60.0 * c.horizon_h)),
            tolerance=2.0,
        )

    def _words(self, snapshot: MetricsSnapshot, outlook: Outlook) -> tuple[str, ...]:
        """The reasons, one per job."""
        tables, row = snapshot.topology.tables, snapshot.topology.row
        reasons = []
        for j, what in enumerate(outlook.what.tolist()):
            if what != _MOVE:
                reasons.append(_WORDS[what])
                continue
            said = (
                f"load {outlook.load_per_s[j]:,.4g}/s: from {outlook.running_per_s[j]:,.4g}/s to a "
                f"configuration that carries {outlook.wanted_per_s[j]:,.4g}/s, at a late minute "
                f"worth {self.config.late_price:g} minutes of the reference configuration"
            )
            times = self._watch["reference_per_s"][j] / tables.rate_per_s[row[j]]
            if times > 1.0:
                said += f"; the load has outgrown the job file's reference rate {times:g} times"
            reasons.append(said)
        return tuple(reasons)


def _refuse_free(jobs: Topology) -> None:
    """Without prices there is nothing to weigh lateness against."""
    for k in np.unique(jobs.row).tolist():
        if not jobs.tables.core_hour[k] + jobs.tables.gib_hour[k] > 0.0:
            raise PolicyError(
                f"job '{jobs.specs[k].job}' has prices of zero, and mdp weighs money against "
                "late seconds",
                remedy="Give the job file the prices of a core and a GiB for an hour.",
            )


def _declared_outage_s(snapshot: MetricsSnapshot) -> Floats:
    """What the job's file says of an outage, with the state there is now, (J,)."""
    tables, row = snapshot.topology.tables, snapshot.topology.row
    state_mib = np.nansum(np.where(snapshot.topology.mask, snapshot.state_mib, 0.0), axis=1)
    return np.asarray(tables.outage_s[row, 1] + state_mib / tables.restore_mib_s[row])


@direct
@njit(cache=True, nogil=True)
def _remember(
    seen: SnapshotArrays, arrived: Floats, declared_s: Floats, recall: Handle[Recall]
) -> None:
    """Takes in what arrived since the last snapshot, and how long the last outage was."""
    r = recall.arrays
    w = r.watch
    now, since = seen.job[JOB.t_s], seen.job[JOB.running_since_s]
    outage = seen.job[JOB.outage_s]
    for j in range(arrived.shape[0]):
        if math.isnan(w.outage_s[j]):
            w.outage_s[j] = declared_s[j]
        elif since[j] != w.since_s[j] and not math.isnan(w.since_s[j]) and outage[j] > 0.0:
            w.outage_s[j] += _OUTAGE_GAIN * (outage[j] - w.outage_s[j])
        w.since_s[j] = since[j]

        elapsed = 0.0 if math.isnan(w.seen_s[j]) else now[j] - w.seen_s[j]
        w.seen_s[j] = now[j]
        rate = arrived[j]
        if math.isnan(rate):
            w.blind_s[j] += elapsed
            if w.minutes[j] == 0:
                continue
            rate = r.minutes.load_per_s[j, HISTORY - 1]  # as it was
        else:
            w.blind_s[j] = 0.0
        w.left_s[j] += elapsed
        w.left_records[j] += elapsed * rate
        complete = round(w.left_s[j] / MINUTE)
        if complete > 0:
            mean = w.left_records[j] / w.left_s[j]
            w.left_s[j], w.left_records[j] = 0.0, 0.0
            for _ in range(min(complete, HISTORY)):
                _append(r, j, mean)


@njit(cache=True, nogil=True)
def _append(r: Recall, j: int, load_per_s: float) -> None:
    """Adds a minute to a load's history, and the state it led to."""
    w, load, states = r.watch, r.minutes.load_per_s[j], r.own.state[j]
    load[:-1] = load[1:]
    load[HISTORY - 1] = load_per_s
    w.minutes[j] += 1
    recent = load[HISTORY - min(w.minutes[j], HISTORY) :]
    level = level_of(recent / w.reference_per_s[j])
    if level > _OUTGROWN:
        while level > _OUTGROWN:
            level /= 2.0
            w.reference_per_s[j] *= 2.0
        states[:] = -1  # they were multiples of another reference
    states[:-1] = states[1:]
    states[states.shape[0] - 1] = state_of(recent / w.reference_per_s[j])


@direct
@njit(cache=True, nogil=True)
def _compare(
    facts: Handle[JobFacts],
    model: Handle[Believed],
    found: Frontiers,
    asked: Bools,
    changed: Bools,
) -> None:
    """Tells of which jobs some configuration of the frontier now carries more or less."""
    for j in range(asked.shape[0]):
        if asked[j]:
            for a in range(found.size[j]):
                p, level = found.parallelism[j, a], found.level[j, a]
                now = believed(model.arrays, facts.arrays, j, p, level)
                if abs(math.log(now / found.rate_per_s[j, a])) > _CHANGED:
                    changed[j] = True


@direct
@njit(cache=True, nogil=True)
def _look_ahead(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    recall: Handle[Recall],
    model: Handle[Believed],
    solved: Handle[Solved],
    stakes: Stakes,
    outlook: Outlook,
) -> None:
    """Takes the configuration whose next minute and values after it cost least, for each job.

    j is a job's row, k its job file, v a vertex, a a place on its frontier. Loads and capacities
    are multiples of the reference.
    """
    t, r, known, s = facts.arrays, recall.arrays, model.arrays, solved.arrays
    for j in range(seen.status.shape[0]):
        k, count = t.row[j], s.frontiers.size[j]
        if seen.status[j] != RUNNING:
            outlook.what[j] = _DOWN
        elif r.watch.blind_s[j] > _BLIND_S:
            outlook.what[j] = _BLIND
        elif r.watch.minutes[j] >= 2 and count == 0:
            outlook.what[j] = _UNKNOWN
        if outlook.what[j] != _HOLD or r.watch.minutes[j] < 2:
            continue
        reference = r.watch.reference_per_s[j]
        load = r.minutes.load_per_s[j, HISTORY - min(r.watch.minutes[j], HISTORY) :] / reference
        state, level = state_of(load), level_of(load)
        backlog = pending_records(t, seen, j) / reference
        backlog = 0.0 if math.isnan(backlog) else backlog
        c = StepPrices(
            stakes.terms.late_price,
            stakes.terms.rescale_price,
            r.watch.outage_s[j],
            IN_TIME * t.slo_s[k],
            stakes.terms.noise,
            stakes.terms.discount,
            stakes.terms.tolerance,
        )
        unit = s.frontiers.cost_per_s[j, _unit_place(s.frontiers, j, reference)]
        later = _expected(s, r.own.state[j], state, stakes.own_weight, j, count) * c.discount

        # What runs: on the frontier or not.
        p, x = seen.parallelism[j], seen.memory_level[j]
        running = believed(known, t, j, p, x)
        cost = _cost_per_s(t, k, p, x) / unit
        here, below = -1, 0
        for a in range(count):
            if _is_same(t, k, p, x, s.frontiers.parallelism[j, a], s.frontiers.level[j, a]):
                here = a
            if s.frontiers.rate_per_s[j, a] <= running:
                below = a
        capacity = running * stakes.headroom / reference
        keep = minute_price(level, capacity, cost, c)
        keep += c.late_price * catch_up_s(level, capacity, backlog, c.in_time_s)
        if here >= 0:
            keep += later[here]
        else:
            keep += later[below] + (cost - s.frontiers.cost_per_s[j, below] / unit) * _KEPT_S

        best, place = keep, -1
        for a in range(count):
            if a == here:
                continue
            p, x = s.frontiers.parallelism[j, a], s.frontiers.level[j, a]
            offered = believed(known, t, j, p, x) * stakes.headroom / reference
            price = move_price(level, offered, s.frontiers.cost_per_s[j, a] / unit, backlog, c)
            price += later[a] + cost * c.outage_s
            if price < best:
                best, place = price, a
        outlook.load_per_s[j], outlook.running_per_s[j] = level * reference, running
        if place >= 0:
            outlook.what[j] = _MOVE
            outlook.wanted_per_s[j] = s.frontiers.rate_per_s[j, place]
            for v in range(t.n[k]):
                if t.kind[k, v] != SOURCE:
                    outlook.parallelism[j, v] = s.frontiers.parallelism[j, place, v]
                    outlook.level[j, v] = s.frontiers.level[j, place, v]


@njit(cache=True, nogil=True)
def _unit_place(f: Frontiers, j: int, reference_per_s: float) -> int:
    """Place of the configuration that carries the reference rate; the largest if none does."""
    for a in range(f.size[j]):
        if f.rate_per_s[j, a] >= reference_per_s * (1.0 - 1e-9):
            return a
    return int(f.size[j] - 1)


@njit(cache=True, nogil=True)
def _expected(s: Solved, own: Ints, state: int, own_weight: float, j: int, count: int) -> Floats:
    """Expected value of each configuration after the next minute, (count,)."""
    row = s.weights[state].copy()
    if own_weight > 0.0:
        for i in range(_SINCE_SOLVED, own.shape[0] - 1):
            if own[i] == state and own[i + 1] >= 0:
                row[own[i + 1]] += own_weight
    found = np.zeros(count)
    for after in range(row.shape[0]):
        if row[after] > 0.0:
            for a in range(count):
                found[a] += row[after] * s.value[j, after, a]
    return np.asarray(found / row.sum())


@njit(cache=True, nogil=True)
def _cost_per_s(t: JobFacts, k: int, parallelism: Ints, level: Ints) -> float:
    """What a configuration costs, sources left out."""
    total = 0.0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            total += parallelism[v] * subtask_cost_per_s(t, k, level[v] + 1)
    return total


@njit(cache=True, nogil=True)
def _is_same(t: JobFacts, k: int, p: Ints, x: Ints, other_p: Ints, other_x: Ints) -> bool:
    """Whether two configurations agree, sources left out."""
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE and (p[v] != other_p[v] or x[v] != other_x[v]):
            return False
    return True
