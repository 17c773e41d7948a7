"""The core of environments over simulated, real and recorded jobs.

The snapshot becomes an observation and masks; an action becomes a decision, passes the guardrails
inside the environment and goes to the jobs, and its outcome becomes the reward.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Literal, NamedTuple, TypedDict

import numpy as np

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.backends.base import Backend
from dsp_gym.envs.codec import Codec, VertexCodec
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.observation import ObservationEncoder
from dsp_gym.envs.reward import TERMS, RewardTerms, ScoringRules, score, weights_of
from dsp_gym.envs.reward_function import RewardFunction, rewards_by
from dsp_gym.job import sizing
from dsp_gym.job.cost import refuse_free
from dsp_gym.loop.decision import GuardedDecision, InterventionKind, ScalingDecision
from dsp_gym.loop.outcome import OUTCOME_PLACES, Outcome
from dsp_gym.loop.plausible import plausible
from dsp_gym.loop.protocols import Guardrail
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.turn import take_turn

_SLO = TERMS.index("slo")


class BatchStep(NamedTuple):
    """The result of one step, each (J,) or (J, ...)."""

    observation: Floats32
    scores: Floats
    """(len(TERMS) + 1, J): the unweighted terms of the reward, then the reward."""
    ends: Bools
    """(2, J): terminated, then truncated."""
    outcome: Outcome
    guarded: GuardedDecision

    @property
    def reward(self) -> Floats:
        """The reward, (J,), at or below zero unless a function computes it."""
        return np.asarray(self.scores[-1])

    @property
    def terminated(self) -> Bools:
        """Whether a job cannot recover, (J,)."""
        return np.asarray(self.ends[0])

    @property
    def truncated(self) -> Bools:
        """Whether the episode is over for another reason, (J,)."""
        return np.asarray(self.ends[1])

    @property
    def terms(self) -> RewardTerms:
        """Unweighted terms by name, each (J,)."""
        return dict(zip(TERMS, self.scores, strict=False))  # the reward has no name


OUTCOME_KEYS = ("slo_s", "cost", "down_s", "pending_s")
"""Keys of a step's `info` that tell the outcome of the interval."""

_OUTCOME_PLACES = tuple((key, OUTCOME_PLACES[key]) for key in OUTCOME_KEYS)

STEP_KEYS = ("reward_terms", "reward_source", "enacted", "interventions", "trips", *OUTCOME_KEYS)
"""Keys of a step's `info`, beside the mask of the next action."""


class InterventionRecord(TypedDict):
    """One change a guardrail made to the decision on one job."""

    guardrail: str
    kind: InterventionKind
    by: str | None  # the policy whose decision stands, where kind is "replaced"
    reason: str  # "" without `explain`


def interventions(guarded: GuardedDecision) -> dict[int, tuple[InterventionRecord, ...]]:
    """Collect the guardrails' changes, by job.

    Returns:
        Records in chain order for each job whose decision was changed.
    """
    found: dict[int, tuple[InterventionRecord, ...]] = {}
    for one in guarded.interventions:
        record: InterventionRecord = {
            "guardrail": one.guardrail,
            "kind": one.kind,
            "by": one.by,
            "reason": one.reason,
        }
        found[one.job] = (*found.get(one.job, ()), record)
    return found


def codec_of(topology: Topology, config: EnvConfig, vertices: int | None = None) -> Codec:
    """Build the observation and action space of an environment.

    Returns:
        Moves of vertices, with room for that many, or capacity actions.
    """
    threads = config.simulation.thread_count(len(topology))
    if config.action == "vertex":
        return VertexCodec(topology, config.ds2_utilization, vertices, threads)
    # Imported where needed: the service model compiles more code than vertex moves need.
    from dsp_gym.envs.capacity.codec import CapacityCodec

    return CapacityCodec(topology, config.capacity, threads)


class EnvCore:
    """J environments without autoreset; a subclass begins the episodes.

    Args:
        topology: the jobs.
        config: clock, reward.
        guardrails: a guardrail (or chain) inside the environment; None: none.
        vertices: number of vertices that observation and action have room for; default: the largest
            job's. Capacity actions do not use it.

    Raises:
        ConfigError: A job has no prices.
    """

    reward_source: ClassVar[Literal["outcome", "metrics"]] = "outcome"
    """Source of the reward's terms: the simulation's truth, or metrics of a real job."""

    def __init__(
        self,
        topology: Topology,
        config: EnvConfig,
        guardrails: Guardrail | None = None,
        vertices: int | None = None,
    ) -> None:
        refuse_free(topology.specs)
        self.config = config
        self.topology = topology
        self.guardrails = guardrails
        self.codec = codec_of(topology, config, vertices)
        self.vertices = vertices or topology.max_vertices
        tables, rows = self.topology.tables, self.topology.row
        self.reference_cost_per_s = sizing.reference_cost_per_s(tables, rows, config.start_headroom)
        # The row of the weights is shared with the rules: writing a price changes the reward.
        weights = weights_of(config.reward, len(topology))
        self.late_price: Floats = weights[_SLO]
        """Weight of the reward's term slo, (J,): the price of a late minute."""
        self._scoring = ScoringRules.of(
            weights, config.give_up_backlog_s, config.interval_s, config.episode_s
        )
        self.reward_function: RewardFunction | None = None
        """Computes the reward from the terms; None: it is their weighted sum."""
        self.steps: Ints = np.zeros(len(self), np.int64)
        self.load_labels: list[str] = [""] * len(self)
        self._observation = np.zeros((len(self), self.codec.observation_size), np.float32)
        self._snapshot: MetricsSnapshot | None = None

    def __len__(self) -> int:
        return len(self.topology)

    @property
    def snapshot(self) -> MetricsSnapshot:
        """The last snapshot."""
        if self._snapshot is None:
            raise RuntimeError("reset() comes first")
        return self._snapshot

    @property
    def encoder(self) -> ObservationEncoder:
        """The encoder of vertices, where the action is one of vertices."""
        if not isinstance(self.codec, VertexCodec):
            raise AttributeError("capacity actions have no encoder of vertices")
        return self.codec.encoder

    @property
    def observation(self) -> Floats32:
        """Observations of the last reset or step, (J, size); zeros before the first reset."""
        return self._observation

    @property
    def backend(self) -> Backend:
        """The jobs of this episode."""
        raise NotImplementedError

    @property
    def enacted(self) -> bool:
        """Whether decisions reach the jobs."""
        return self.backend.actuator is not None

    def seed(self, seeds: Ints, mask: Bools | None = None) -> None:
        """Give each environment a new stream of episodes, or those where the mask is True."""
        raise NotImplementedError

    def reset(self, mask: Bools | None = None) -> Floats32:
        """Begin the next episode in all environments, or in those where the mask is True.

        Returns:
            Observations (J, size) of all environments.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release resources outside this process; there are none unless a subclass holds some."""

    def step(self, actions: Ints) -> BatchStep:
        """Take actions (J, parts) and advance every job by one decision interval.

        Returns:
            The step's results, each (J,) or (J, ...).
        """
        return self.enact(self.decode_actions(actions))

    def enact(self, decision: ScalingDecision) -> BatchStep:
        """Take a decision and advance every job by one decision interval.

        Returns:
            The step's results, each (J,) or (J, ...).
        """
        # The decision is given: `take_turn` adds plausibility checks and guardrails, as in the
        # loop.
        guarded = take_turn(self.snapshot, lambda _: decision, self.guardrails)
        self._ask(guarded)
        # In place into fresh arrays, since callers keep the results of a step.
        outcome = self._rewarded(self.backend.advance(self.config.interval_s))
        jobs = len(self.steps)
        scores, ends = np.empty((len(TERMS) + 1, jobs)), np.empty((2, jobs), np.bool_)
        columns, per_s = outcome.columns, self.reference_cost_per_s
        score(columns, per_s, self._scoring, 0, jobs, self.steps, scores, ends)
        if self.reward_function is not None:
            named = dict(zip(TERMS, scores, strict=False))  # the reward has no name
            scores[-1] = rewards_by(self.reward_function, named)
        self._observation = self._look()
        self._end(ends)
        return BatchStep(self._observation, scores, ends, outcome, guarded)

    def action_masks(self) -> Bools:
        """Mark the valid choices.

        Returns:
            (J, sum of `codec.choices`) flags, one part of the action after the other: for each
            vertex 7 moves, then 3 of memory; or holding, then the multiples of the load.
        """
        return self.masks_of(self.snapshot)

    def masks_of(self, snapshot: MetricsSnapshot) -> Bools:
        """Mark the choices that are valid on a snapshot of these jobs.

        Returns:
            Flags, as `action_masks`.
        """
        return self.codec.masks(snapshot)

    def decode_actions(self, actions: Ints) -> ScalingDecision:
        """Read actions (J, parts) as a decision about the jobs as they were seen last.

        Returns:
            Parallelism and memory levels, (J, V) each.
        """
        return self.codec.decode(self.snapshot, actions)

    def encode_decision(self, decision: ScalingDecision) -> Ints:
        """Find the valid action nearest to a decision.

        Returns:
            Actions (J, parts).
        """
        return self.codec.encode(self.snapshot, decision)

    def info(
        self, step: BatchStep, job: int, keys: Collection[str] = STEP_KEYS
    ) -> dict[str, object]:
        """Describe one job's step beside observation and reward.

        Args:
            step: The step.
            job: Row of the job.
            keys: What is wanted, of `STEP_KEYS`; other names are passed over.

        Returns:
            Values by name, as `AutoscaleEnv.step` lists them.
        """
        # Key by key, without a loop: vector environments of Gymnasium read this at every step.
        found: dict[str, object] = {}
        if "reward_terms" in keys:
            found["reward_terms"] = dict(zip(TERMS, step.scores[:-1, job].tolist(), strict=True))
        if "reward_source" in keys:
            found["reward_source"] = self.reward_source
        if "enacted" in keys:
            found["enacted"] = self.enacted
        if "interventions" in keys:
            changed = step.guarded.interventions
            found["interventions"] = interventions(step.guarded).get(job, ()) if changed else ()
        if "trips" in keys:
            found["trips"] = step.guarded.trips[job]
        columns = step.outcome.columns
        for key, place in _OUTCOME_PLACES:
            if key in keys:
                found[key] = columns.item(job, place)
        return found

    def _ask(self, guarded: GuardedDecision) -> None:
        """Ask the jobs for a configuration, unless the backend only watches them."""
        if (actuator := self.backend.actuator) is not None:
            actuator.apply(guarded)

    def _rewarded(self, outcome: Outcome) -> Outcome:
        """Return the outcome that the reward is computed from."""
        return outcome

    def _end(self, ends: Bools) -> None:
        """Add ends of an episode beside those of the rules; (2, J): terminated, truncated."""

    def _begin(self, rows: Ints, seeds: Ints, mask: Bools | None) -> Floats32:
        self.steps[rows] = 0
        self.codec.reset(mask)
        if self.guardrails is not None:
            self.guardrails.reset(self.topology, seeds, mask)
        if mask is None:
            self._observation = self._look()
        else:  # encoding advances the encoder's memory: other rows are left out
            observation = self._observation.copy()
            observation[rows] = self._look(rows)
            self._observation = observation
        return self._observation

    def _look(self, rows: Ints | None = None) -> Floats32:
        """Take a snapshot, and encode it or its given rows."""
        self._snapshot = seen = plausible(self.backend.collector.snapshot())
        return self.codec.look(seen, self.late_price, rows)
