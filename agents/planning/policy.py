"""Planning by value iteration as a policy, with one look-ahead per decision.

The service model estimates the capacity of configurations, the chain predicts the load, and the
values state the expected price of both.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from agents.holding import HOLD_BLIND, HOLD_DOWN, HOLD_UNSEEN, HOLD_YOUNG
from agents.planning.chain import (
    RARE,
    LoadChain,
    counted,
    highest_level,
    pooled,
    sparse,
)
from agents.planning.config import MdpConfig
from agents.planning.forecast import AHEAD, QUANTILE, LoadForecasts
from agents.planning.laws import Laws, chain_of, laws_of, shares_of
from agents.planning.load import HISTORY, MOODS, STATES, levels
from agents.planning.look_ahead import (
    BLIND,
    DOWN,
    HOLD,
    MOVE,
    UNKNOWN,
    YOUNG,
    Outlook,
    Solved,
    Stakes,
    compare,
    look_ahead,
)
from agents.planning.recall import (
    OWN,
    SINCE_SOLVED,
    Heard,
    Minutes,
    Own,
    Recall,
    RecallTerms,
    Watched,
    remember,
)
from agents.planning.trained import Trained, own_pasts, trained
from agents.planning.value import Offer, StepPrices, solve
from agents.planning.walk import of_levels
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.errors import PolicyError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.forecast import Forecast
from dsp_gym.loop.lacking import OBSERVED
from dsp_gym.loop.per_job_state import Parts, Per, RowMemory
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import UNFILLED, LastKnown, hold_unknown, told
from dsp_gym.numba_handles import Handle, Handles
from dsp_gym.policies.capabilities import Capabilities, ExplainingPolicy, FutureLoad
from dsp_gym.sizing.arrivals import Arrivals
from dsp_gym.sizing.frontier import Frontiers
from dsp_gym.sizing.lateness import IN_TIME
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import ServiceModel
from dsp_gym.sizing.warming import Warming

__all__ = ["MdpConfig", "MdpPolicy"]


_AGAIN_S, _OFTEN_S = 3600.0, 600.0
"""Seconds after which values are computed again; and where capacities have changed."""

_LOST_S = 10.0
"""Change of a restart's losses, in seconds, that counts as a change."""

_KEPT_VALUES = 128
"""Upper bound of the solutions kept, besides the number of rows: rows of one job start alike."""

_UNSURE = 0.3
"""Relative standard error of a time per record above which a decision mentions it."""

_LIKELY = 0.5
"""Probability of a law above which a decision names it."""

_WORDS = {
    HOLD: "hold",
    BLIND: HOLD_BLIND,
    UNKNOWN: HOLD_UNSEEN,
    DOWN: HOLD_DOWN,
    YOUNG: HOLD_YOUNG,
}


class _Load(NamedTuple):
    """Knowledge of loads in general."""

    forecasts: LoadForecasts
    laws: Laws
    rare: float  # probability at or below which successors are dropped
    highest: float  # level that was counted, as a multiple of the reference
    by_level: LoadChain | None = None  # of a walk, which is the same whatever the mood


_LOADS: dict[tuple[bytes, float | None], _Load] = {}
_MOST_LOADS = 8

_RARE_OF_WALKS = 1e-6
"""A walk's jumps are rare and spread over many levels; a walk has few other successors."""


def _load_of(counts: Floats, neighbours: float | None) -> _Load:
    """Derive laws and forecasts from counts, once for equal counts: they take seconds and MB.

    Args:
        counts: (K, STATES, STATES) minutes of each law.
        neighbours: Minutes of the neighbouring levels; None: the counts are a walk's weights.

    Returns:
        The laws they make, and forecasts by all of them together.
    """
    key = hashlib.sha256(np.ascontiguousarray(counts).data).digest(), neighbours
    found = _LOADS.get(key)
    if found is None:
        if len(_LOADS) >= _MOST_LOADS:
            _LOADS.pop(next(iter(_LOADS)), None)
        together = counts.sum(axis=0)
        if neighbours is None:
            rare, by_level = _RARE_OF_WALKS, sparse(of_levels(together), _RARE_OF_WALKS)
            laws = laws_of([together], rare)
            found = _Load(LoadForecasts(together), laws, rare, math.inf, by_level)
        else:
            forecasts = LoadForecasts(pooled(together, neighbours))
            laws = laws_of((pooled(one, neighbours) for one in counts), RARE)
            found = _Load(forecasts, laws, RARE, highest_level(together))
        _LOADS[key] = found
    return found


class MdpPolicy(ExplainingPolicy):
    """Plans by value iteration: money against late seconds, over the load's states.

    Args:
        config: Parameters of the policy.
        counts: (K, STATES, STATES) minutes of transitions by law, instead of those the
            configuration names.
    """

    Config = MdpConfig

    def __init__(self, config: MdpConfig | None = None, counts: Floats | None = None) -> None:
        self.name = "mdp"
        self.plans_after = False
        self.is_due = False
        config = config or MdpConfig()
        start = trained(config) if counts is None else Trained(config, counts, {}, {})
        self.config = c = start.config
        is_walk = counts is None and c.walk is not None
        # `know_law` replaces all of them by one.
        laws = start.counts.sum(axis=0, keepdims=True) if c.known_law else start.counts
        self._load = _load_of(laws, None if is_walk else c.neighbours)
        # The counts take tens of MB, and the laws hold what matters of them.
        self._start = start._replace(counts=np.zeros((0, STATES, STATES)))
        self.document = start.document
        self._law_names = start.laws
        self._specs = tuple(load_job(name) for name in c.job_files)
        self._levels = levels()
        self._arrivals = Arrivals()
        self._model = ServiceModel(c.sizing)
        self._warming = Warming()
        # Rows of the batch, saved with `state()`; NaN and 0 mark what has not been seen.
        self._watch = RowMemory(
            {
                "minutes": ("job", 0),
                "reference_per_s": ("job", np.nan),
                "seen_s": ("job", np.nan),
                "left_s": ("job", 0.0),
                "left_records": ("job", 0.0),
                "blind_s": ("job", 0.0),
                "outage_s": ("job", np.nan),
                "noise": ("job", c.noise),
                "since_s": ("job", np.nan),
                "solved_s": ("job", np.nan),
                "solved_minutes": ("job", 0),
                "solved_outage_s": ("job", np.nan),
                "solved_lost_s": ("job", 0.0),
                "solved_noise": ("job", c.noise),
                "solved_reference_per_s": ("job", np.nan),
            }
        )
        self._minutes = RowMemory({"load_per_s": ("job", 0.0)}, depth=HISTORY)
        self._own = RowMemory({"state": ("job", -1)}, depth=OWN + SINCE_SOLVED)
        self._heard = self._unheard()
        self._last_known = LastKnown(OBSERVED)
        self._parts = Parts(
            arrivals=self._arrivals,
            model=self._model,
            warming=self._warming,
            watch=self._watch,
            minutes=self._minutes,
            own=self._own,
            heard=self._heard,
            last_known=self._last_known,
        )
        self._jobs: Topology | None = None
        self._prior: Prior | None = None
        self._solved: Solved | None = None
        self._handles = Handles()
        self._values: dict[bytes, Floats] = {}

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Restart all rows, or only those where the mask is True.

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
        for k, past in own_pasts(self._start, jobs).items():
            self._model.adopt(np.flatnonzero(rows & (jobs.row == k)), past)
        self._arrivals.reset(jobs, mask)
        self._warming.reset(jobs, self._prior, mask)
        self._last_known.reset(jobs, mask)
        for memory in (self._watch, self._minutes, self._own, self._heard):
            memory.reset(jobs, mask)
        self._watch["reference_per_s"][rows] = jobs.tables.rate_per_s[jobs.row[rows]]
        if mask is None or self._solved is None:
            frontiers = Frontiers.empty(jobs, c.configurations)
            value = np.zeros((len(jobs), STATES, c.configurations))
            price = np.zeros(len(jobs))
            self._solved = Solved(frontiers, value, self._load.laws, price)
        self._solved.frontiers.size[rows] = 0
        self._solved.late_price[rows] = c.late_price
        self._jobs, self._handles = jobs, Handles()

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Choose the configuration with the least expected price.

        Returns:
            The decision, (J, V), with each job's reason.
        """
        snapshot = self._last_known.filled(snapshot)
        c, seen, solved = self.config, snapshot.arrays, self._ready
        arrived = self._arrivals.observe(snapshot)
        self._model.observe(snapshot)
        self._warming.observe(snapshot, self._model.believed)
        laws, terms = self._known_laws, RecallTerms(c.noise, c.law_memory_h)
        remember(seen, arrived, _declared_outage_s(snapshot), laws, terms, self._recall)
        self._plan(snapshot, put_off=self.plans_after)
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
        look_ahead(
            snapshot.topology.handle,
            seen,
            self._recall,
            self._model.believed,
            self._handles.of("solved", lambda: solved),
            Stakes(self._terms(0.0, 0.0, 0.0, 0.0, 0.0), c.headroom, c.own_weight),
            outlook,
        )
        words = self._words(snapshot, outlook) if self.explain else ("",) * jobs
        parallelism, level = hold_unknown(snapshot, parallelism, level, UNFILLED)
        return ScalingDecision(parallelism, level, words)

    def capabilities(self) -> Capabilities:
        """Return what the policy can do beyond deciding.

        Returns:
            The record. A decision waits for nothing, but frontiers and values are not rows.
        """
        return replace(
            super().capabilities(),
            memories=lambda: None,
            shared=self.shared,
            later_plans=self,
            forecast=self.forecast,
            know_future=self.know_law if self.config.known_law else None,
            price_lateness=self.price_lateness,
        )

    def price_lateness(self, prices: Floats) -> None:
        """Weigh lateness by another price in each row from its next plan on, until its reset.

        Args:
            prices: (J,) price of a late minute, in minutes of the reference configuration.
        """
        price = self._ready.late_price
        self._watch["solved_s"][price != prices] = np.nan
        price[:] = prices

    def know_law(self, jobs: Topology, future: FutureLoad) -> None:
        """Count the transitions on loads of the same law, in place of the configured ones.

        Raises:
            PolicyError: None were drawn.
        """
        if future.same_law is None:
            raise PolicyError(
                "the planner is to know the law of the load, and is given no loads of that law",
                key="known_law",
                remedy="Evaluate it by a referee, such as core-v3, or leave known_law out.",
            )
        self._load = _load_of(counted(future.same_law)[None], self.config.neighbours)
        self._solved = None
        self._values.clear()

    @property
    def has_plan(self) -> bool:
        """Whether there are values for every job."""
        return self._solved is not None and bool(self._solved.frontiers.size.all())

    def plan(self, snapshot: MetricsSnapshot) -> None:
        """Compute what the last decision, on the same snapshot, has put off."""
        self._plan(snapshot, put_off=False)

    def forecast(self) -> Forecast | None:
        """Forecast the load of each job by the chain.

        Returns:
            The highest 90 % quantile of the next 20 minutes, a row per job; None before `reset`.
        """
        if self._jobs is None:
            return None
        watch, minutes = self._watch.arrays(Watched), self._minutes.arrays(Minutes)
        expected, error = np.full((2, len(self._jobs)), np.nan)
        for j, seen in enumerate(watch.minutes.tolist()):
            if seen >= 2:
                # As multiples of the reference, as transitions are counted; scaled back below.
                reference = float(watch.reference_per_s[j])
                load = minutes.load_per_s[j, HISTORY - min(seen, HISTORY) :] / reference
                expected[j], error[j] = self._load.forecasts.look_forward(load)
                expected[j] *= reference
        return Forecast(expected, error, 60.0 * AHEAD, QUANTILE)

    def shared(self) -> tuple[object, ...]:
        """The laws of the load and its forecasts: the same objects for equal counts."""
        return self._load, *self._load.laws, self._load.forecasts.weights

    def state(self) -> State:
        """Return everything the next decision depends on.

        Returns:
            JSON values; the values of the decision process are computed from them.
        """
        frontiers = self._ready.frontiers
        solved = {name: getattr(frontiers, name).tolist() for name in Frontiers._fields}
        return {**self._parts.state(), "frontiers": solved}

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`; those of earlier releases hold no evidence."""
        self._parts.restore({"heard": {}, **state})
        self._handles = Handles()
        frontiers = self._ready.frontiers
        for name in Frontiers._fields:
            getattr(frontiers, name)[:] = state["frontiers"][name]
        self._solve(frontiers.size > 0)

    @property
    def _ready(self) -> Solved:
        if self._solved is None:
            raise RuntimeError("reset() comes first")
        return self._solved

    @property
    def _recall(self) -> Handle[Recall]:
        return self._handles.of("recall", self._recalled)

    def _recalled(self) -> Recall:
        watch, minutes = self._watch.arrays(Watched), self._minutes.arrays(Minutes)
        own, heard = self._own.arrays(Own), self._heard.arrays(Heard)
        return Recall(watch, minutes, own, heard, self._warming.arrays)

    @property
    def _known_laws(self) -> Handle[Laws]:
        return self._handles.of("laws", lambda: self._load.laws)

    def _unheard(self) -> RowMemory:
        """Make the memory of the evidence for each law."""
        laws = len(self._load.laws.size)
        fields: dict[str, tuple[Per, float]] = dict.fromkeys(Heard._fields, ("job", 0.0))
        return RowMemory(fields, depth=dict.fromkeys(fields, laws))

    def _plan(self, snapshot: MetricsSnapshot, *, put_off: bool) -> None:
        """Compute outdated frontiers and values; with `put_off` only those that cannot wait."""
        jobs, watch = snapshot.topology, self._watch.arrays(Watched)
        now, found = snapshot.t_s, self._ready.frontiers
        age_s = np.where(np.isnan(watch.solved_s), np.inf, now - watch.solved_s)
        changed = np.zeros(len(jobs), dtype=bool)
        late = (age_s >= _OFTEN_S) & (found.size > 0)
        compare(jobs.handle, self._model.believed, found, late, changed)
        lost_s = self._warming.arrays.lost_s
        changed |= late & (np.abs(lost_s - watch.solved_lost_s) > _LOST_S)
        grown = watch.solved_reference_per_s != watch.reference_per_s
        needed: Bools = (found.size == 0) | grown
        due: Bools = needed | (age_s >= _AGAIN_S) | (late & changed)
        possible = snapshot.running & (watch.minutes > 0)
        self.is_due = put_off and bool((due & ~needed & possible).any())
        # Jobs without a frontier, or with another reference, have no usable values: they cannot
        # wait.
        due = (needed if put_off else due) & possible
        if not due.any():
            return
        # Configurations beyond twice the reference are of no interest: levels end at LEVELS * BIN =
        # 1.6 of it.
        enough = 2.0 * watch.reference_per_s / self.config.headroom
        found.find(jobs, self._model, due, enough)
        solved: Bools = due & (found.size > 0)
        watch.solved_s[solved] = now[solved]
        watch.solved_minutes[solved] = watch.minutes[solved]
        watch.solved_outage_s[solved] = watch.outage_s[solved]
        watch.solved_lost_s[solved] = lost_s[solved]
        watch.solved_noise[solved] = watch.noise[solved]
        watch.solved_reference_per_s[solved] = watch.reference_per_s[solved]
        heard = self._heard.arrays(Heard)
        heard.solved_evidence[solved] = heard.evidence[solved]
        self._solve(solved)

    def _solve(self, rows: Bools) -> None:
        """Solve some jobs, from their frontiers and the facts known when these were computed."""
        found = self._ready.frontiers
        reference_per_s = self._watch.arrays(Watched).solved_reference_per_s
        places, _ = found.grid(reference_per_s[:, None], self.config.noise)
        for j in np.flatnonzero(rows).tolist():
            self._solve_one(j, float(found.cost_per_s[j, places[j, 0]]))

    def _solve_one(self, j: int, unit: float) -> None:
        """Solve one job; `unit` is the cost of the configuration for its reference rate."""
        watch, found = self._watch.arrays(Watched), self._ready.frontiers
        count, reference = int(found.size[j]), float(watch.solved_reference_per_s[j])
        offer = Offer(
            found.rate_per_s[j, :count] * self.config.headroom / reference,
            found.cost_per_s[j, :count] / unit,
        )
        in_time_s = IN_TIME * float(self._slo_s[j])
        outage_s, lost_s = float(watch.solved_outage_s[j]), float(watch.solved_lost_s[j])
        noise, price = float(watch.solved_noise[j]), float(self._ready.late_price[j])
        terms = self._terms(price, outage_s, lost_s, in_time_s, noise)
        own = np.zeros(0, np.int64)
        if self.config.own_weight > 0.0:
            # Without the minutes since: a restored state thus finds the same values, to the bit.
            later = int(watch.minutes[j] - watch.solved_minutes[j])
            states = self._own.arrays(Own).state[j]
            own = states[: len(states) - later][-OWN:]
        evidence = self._heard.arrays(Heard).solved_evidence[j]
        # The key is the whole input of `solve`: rows of equal jobs share one solution.
        key = b"".join(
            (
                *(np.ascontiguousarray(part).tobytes() for part in (*offer, own, evidence)),
                repr(terms).encode(),
            )
        )
        if key not in self._values:
            if len(self._values) >= min(_KEPT_VALUES, len(found.size)):
                # Bounded: the oldest solution goes first, as dicts keep the order of insertion.
                self._values.pop(next(iter(self._values)))
            self._values[key] = self._valued(offer, own, evidence, terms)
        self._ready.value[j, :, :count] = self._values[key]

    def _valued(self, offer: Offer, own: Ints, evidence: Floats, terms: StepPrices) -> Floats:
        """Solve for the values of a job's configurations, (STATES, N)."""
        load, weight = self._load, self.config.own_weight
        if load.by_level is not None and not len(own):
            # Moods neither matter nor mix: one is solved, the values of the others are equal.
            one = solve(load.by_level, self._levels[::MOODS].copy(), offer, terms)
            return np.repeat(one, MOODS, axis=0)
        chain = chain_of(load.laws, shares_of(evidence), own, weight, load.rare)
        return solve(chain, self._levels, offer, terms)

    @property
    def _slo_s(self) -> Floats:
        assert self._jobs is not None
        return np.asarray(self._jobs.facts.slo_s[self._jobs.row])

    def _terms(
        self, late_price: float, outage_s: float, lost_s: float, in_time_s: float, noise: float
    ) -> StepPrices:
        """Return the prices of a job."""
        c = self.config
        return StepPrices(
            late_price=late_price,
            rescale_price=c.rescale_price,
            outage_s=outage_s,
            lost_s=lost_s,
            in_time_s=in_time_s,
            noise=noise,
            # Prices after `horizon_h` hours weigh 1 / e: discount^(60 horizon_h) = 1 / e.
            discount=math.exp(-1.0 / (60.0 * c.horizon_h)),
            tolerance=2.0,
        )

    def _words(self, snapshot: MetricsSnapshot, outlook: Outlook) -> tuple[str, ...]:
        """Write the reasons, one per job."""
        tables, row = snapshot.topology.tables, snapshot.topology.row
        # Errors of the chosen configurations, not of the running ones.
        _, errors = self._model.times(snapshot.topology, outlook.parallelism, outlook.level)
        reasons = []
        for j, what in enumerate(outlook.what.tolist()):
            far = self._far(snapshot.topology, outlook, errors, j)
            if what != MOVE:
                reasons.append(_WORDS[what] + far)
                continue
            said = (
                f"load {outlook.load_per_s[j]:,.4g}/s: from {outlook.running_per_s[j]:,.4g}/s to a "
                f"configuration that carries {outlook.wanted_per_s[j]:,.4g}/s, at a late minute "
                f"worth {self._ready.late_price[j]:g} minutes of the reference configuration"
            )
            said += self._law(j)
            times = self._watch["reference_per_s"][j] / tables.rate_per_s[row[j]]
            if times > 1.0:
                said += f"; the load has outgrown the job file's reference rate {times:g} times"
            reasons.append(said + far)
        return told(snapshot, reasons, _WORDS[HOLD])

    def _law(self, j: int) -> str:
        """Name the law that a load follows; "" where none is likelier than all others together."""
        names, shares = self._law_names, shares_of(self._heard.arrays(Heard).evidence[j])
        likeliest = int(np.argmax(shares))
        if len(names) != len(shares) or shares[likeliest] <= _LIKELY:
            return ""
        return (
            f"; its load behaves as '{names[likeliest]}' does ({100.0 * shares[likeliest]:.0f} %)"
        )

    def _far(self, jobs: Topology, outlook: Outlook, errors: Floats, j: int) -> str:
        """Name the parts of a decision that lie outside everything learned; "" where none does."""
        if outlook.what[j] not in (HOLD, MOVE):
            return ""
        said, level = "", outlook.load_per_s[j] / self._watch["reference_per_s"][j]
        if level > self._load.highest:
            said += (
                f"; the load is {level:.2f} of the reference rate, above all that training "
                f"counted ({self._load.highest:.2f})"
            )
        if np.fmax.reduce(errors[j], initial=0.0) > _UNSURE:
            v = int(np.nanargmax(errors[j]))
            said += (
                f"; the time per record of {jobs.names(j)[v]} is known to "
                f"{100.0 * errors[j, v]:.0f} % only"
            )
        return said


def _refuse_free(jobs: Topology) -> None:
    """Refuse jobs without prices: lateness could not be weighed against money."""
    for k in np.unique(jobs.row).tolist():
        if not jobs.tables.core_hour[k] + jobs.tables.gib_hour[k] > 0.0:
            raise PolicyError(
                f"job '{jobs.specs[k].job}' has prices of zero, and mdp weighs money against "
                "late seconds",
                remedy="Give the job file the prices of a core and a GiB for an hour.",
            )


def _declared_outage_s(snapshot: MetricsSnapshot) -> Floats:
    """Compute the outage that the job file declares, for the present size of state, (J,)."""
    tables, row = snapshot.topology.tables, snapshot.topology.row
    # Unknown sizes count as zero: stateless vertices report none.
    known = snapshot.topology.mask & ~np.isnan(snapshot.state_mib)
    state_mib = np.where(known, snapshot.state_mib, 0.0).sum(axis=1)
    return np.asarray(tables.outage_s[row, 1] + state_mib / tables.restore_mib_s[row])
