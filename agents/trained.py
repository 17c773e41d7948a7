"""A trained agent as a policy: NumPy only, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from agents.capacity import CapacityAgent
from agents.folder import POLICY, PolicyDocument, read_folder
from agents.holding import HOLD_NOT_FINITE
from agents.network import Weights, logits, not_finite, parameters
from agents.recurrent import LstmMemory
from agents.shipped import policy_folder
from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.envs import action
from dsp_gym.envs.capacity import CAPACITY_FEATURES, KAPPAS
from dsp_gym.envs.observation import JOB_FEATURES, VERTEX_FEATURES, ObservationEncoder
from dsp_gym.envs.single_move import masks_of, pairs_of
from dsp_gym.errors import PolicyError
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import OBSERVED
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import UNFILLED, LastKnown, hold_unknown, told
from dsp_gym.policies.capabilities import Capabilities, ExplainingPolicy

HOLD = "hold"


class TrainedConfig(ConfigModel):
    """The policy folder to read."""

    path: str = Field(
        description="folder of the policy, as `dsp-gym train` makes it, or `shipped:NAME` of one "
        "that travels with the package; its document names the installed policy that reads it",
    )
    late_price: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="price of a late minute, in minutes of the reference configuration, of a "
        "policy that decides on capacities; none: as it says itself",
    )


class TrainedPolicy(ExplainingPolicy):
    """A trained policy, read from its folder.

    This class reads the folders of networks and always takes the network's best move. The registry
    passes the folder of any other kind to the policy that its document names.
    """

    Config = TrainedConfig

    def __init__(self, config: TrainedConfig) -> None:
        self.name = "trained"
        self.config = config
        self.folder = policy_folder(self.config.path)
        self.document, self._weights = read_folder(self.folder)
        _refuse_other_spaces(self.document, self._weights, self.folder / POLICY)
        self._encoder: ObservationEncoder | None = None
        self._memory = LstmMemory(self._weights, self.document.network)
        self._last_known = LastKnown(OBSERVED)
        self._of_job = _capacity_agent(self.document, self._weights, self.config, self.folder)
        self.confidence: Floats32 | None = None
        """Probability of the moves last decided, (J, V), where it explains; 1 beyond the graph."""

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._last_known.reset(jobs, mask)
        if self._of_job is not None:
            self._of_job.reset(jobs, mask)
            return
        self._memory.reset(len(jobs), mask)
        if mask is not None and self._encoder is not None:
            # A masked reset restarts episodes of known jobs: the encoder exists already.
            self._encoder.reset(mask)
            return
        network, vertices = self.document.network, jobs.max_vertices
        if network.encoder == "mlp":
            if vertices > network.vertices:
                raise PolicyError(
                    f"the policy was trained on jobs of at most {network.vertices} vertices and "
                    f"its network (mlp) is bound to them; this job has {vertices}",
                    file=self.folder,
                    remedy="Train one with network.encoder: graph, which acts on any job.",
                )
            vertices = network.vertices
        # The network's own number of columns for mlp, the batch's for graph.
        self._encoder = ObservationEncoder(jobs, vertices)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Take the best valid move of every vertex, or the best capacity of the job.

        Last known values stand in for those that a vertex lacks, and nothing is taken from it.

        Returns:
            The decision, (J, V), with each job's reason.
        """
        seen = self._last_known.filled(snapshot)
        wanted = self._wanted(seen)
        parallelism, level = hold_unknown(seen, wanted.parallelism, wanted.memory_level, UNFILLED)
        reasons = told(seen, wanted.reasons, HOLD) if self.explain else wanted.reasons
        return ScalingDecision(parallelism, level, reasons)

    def _wanted(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Decide on a snapshot in which last known values stand in for those that are lacking."""
        if self._of_job is not None:
            decision, taken = self._of_job.decide(snapshot, self.explain)
            if self.explain:
                self.confidence = np.repeat(taken[:, None], decision.parallelism.shape[1], axis=1)
            return decision
        encoder, network = self._ready, self.document.network
        seen, columns = encoder.encode(snapshot), snapshot.topology.max_vertices
        parallelism, level = action.targets(snapshot, self.document.ds2_utilization)
        valid = action.masks(parallelism, level).reshape(len(snapshot), columns, action.LOGITS)
        scores: Floats32 | None = None
        with np.errstate(over="ignore", invalid="ignore"):  # the reason below says so
            remembered = self._memory.see(seen)
            values = logits(
                self._weights, network.for_vertices(encoder.layout.vertices), seen, remembered
            )
        lost = not_finite(values)
        # A network decides as in training: masked only if it was masked there; otherwise an
        # invalid choice holds (`_held`), as in the environment.
        masked = self.document.action.masked
        if network.single:
            pairs = _single(values, valid, encoder.layout.vertices, masked)
        else:
            scores = values.reshape(len(snapshot), -1, action.LOGITS)[:, :columns]
            if masked:
                scores = np.where(valid, scores, -np.inf)
            pairs = _best(scores)
        if not masked:
            pairs = _held(pairs, valid)
        pairs = np.where(lost[:, None, None], 0, pairs)
        self._memory.forget_where(lost)
        wanted = action.decode(pairs.reshape(len(snapshot), -1), parallelism, level)
        reasons = [HOLD if self.explain else ""] * len(snapshot)
        if self.explain:
            if scores is not None:
                self.confidence = _probability(scores, pairs, snapshot.topology.mask)
            for job in np.flatnonzero(pairs.any(axis=(1, 2))).tolist():
                reasons[job] = _reason(snapshot, pairs, job)
        for job in np.flatnonzero(lost).tolist():
            reasons[job] = HOLD_NOT_FINITE
        return ScalingDecision(wanted.parallelism, wanted.memory_level, tuple(reasons))

    def capabilities(self) -> Capabilities:
        """Return what the policy can do beyond deciding.

        Returns:
            The record.
        """
        return replace(
            super().capabilities(),
            confidence=lambda: self.confidence,
            shared=self.shared,
            training=self,
        )

    def shared(self) -> tuple[object, ...]:
        """The weights: the same arrays for all readers of the same file."""
        return tuple(self._weights.values())

    @property
    def training_box(self) -> Mapping[str, tuple[float, float]]:
        """Lowest and highest value of each feature in training, slightly widened."""
        return self.document.observation.quantiles

    def features(self, snapshot: MetricsSnapshot) -> Mapping[str, Floats32]:
        """Split the observation by feature, for the out-of-distribution guardrail.

        The memory of past snapshots is left unchanged.

        Returns:
            Each feature by name, (J, V) or (J,).
        """
        snapshot = self._last_known.filled(snapshot, remember=False)
        if self._of_job is not None:
            return self._of_job.features(snapshot)
        encoder = self._ready
        memory = encoder.save()
        observation = encoder.encode(snapshot)
        encoder.load(dict(memory))
        layout, columns = encoder.layout, snapshot.topology.max_vertices
        vertex = observation[:, layout.vertex].reshape(len(snapshot), layout.vertices, -1)
        job = observation[:, layout.job]
        return {
            **{name: vertex[:, :columns, i] for i, name in enumerate(VERTEX_FEATURES)},
            **{name: job[:, i] for i, name in enumerate(JOB_FEATURES)},
        }

    def state(self) -> State:
        if self._of_job is not None:
            own = self._of_job.state()
        elif self._encoder is not None:
            own = {**self._encoder.state(), **self._memory.state()}
        else:
            return {}
        return {**own, "last_known": self._last_known.state()} if own else {}

    def restore(self, state: State) -> None:
        if not state:
            return
        self._last_known.restore(state["last_known"])
        if self._of_job is not None:
            self._of_job.restore(state)
        else:
            self._ready.restore(state)
            self._memory.restore(state)

    @property
    def _ready(self) -> ObservationEncoder:
        if self._encoder is None:
            raise RuntimeError("reset() comes first")
        return self._encoder

    def scores(
        self, observation: Floats32, vertices: int, remembered: Floats32 | None = None
    ) -> Floats32:
        """Compute the network's logits for encoded snapshots.

        Args:
            observation: (J, size) observations, as the encoder returns them.
            vertices: V, vertices per row.
            remembered: Output of the network's LSTM for the observation; None: it has no LSTM.

        Returns:
            (J, V, LOGITS): the logits of every move of parallelism, then of memory.
        """
        shape = self.document.network.for_vertices(vertices)
        flat = logits(self._weights, shape, observation, remembered)
        return flat.reshape(len(observation), vertices, action.LOGITS)


def _capacity_agent(
    document: PolicyDocument, weights: Weights, config: TrainedConfig, folder: Path
) -> CapacityAgent | None:
    """Build the agent of a folder with capacity actions; None for one with vertex actions."""
    asked, known = config.late_price, document.action
    if known.space != "capacity":
        if asked is not None:
            raise PolicyError(
                "the policy moves single vertices and has the fixed late_price of its training",
                file=folder,
                key="late_price",
                value=asked,
                remedy="Leave late_price out, or name a policy that decides on capacities.",
            )
        return None
    price = asked or known.late_price or 1.0
    low, high = known.late_prices or (price, price)
    if not low <= price <= high:
        raise PolicyError(
            f"the policy was trained with prices of a late minute from {low:g} to {high:g}",
            file=folder,
            key="late_price",
            value=price,
            remedy="Name one between them, or train the policy with other prices.",
        )
    return CapacityAgent(document, weights, price)


def _best(scores: Floats32) -> Ints:
    """Choose the best-scored move and memory move of every vertex, (J, V, 2)."""
    return np.stack(
        [scores[..., : action.MOVES].argmax(2), scores[..., action.MOVES :].argmax(2)], axis=2
    )


def _single(values: Floats32, valid: Bools, vertices: int, masked: bool) -> Ints:
    """Choose the best single move, as (J, V, 2) moves of the batch's V vertices."""
    jobs, columns, _ = valid.shape
    if masked:
        room = np.zeros((jobs, vertices, action.LOGITS), bool)
        room[:, :columns] = valid
        values = np.where(masks_of(room.reshape(jobs, -1)), values, -np.inf)
    return pairs_of(values.argmax(axis=1), vertices).reshape(jobs, vertices, 2)[:, :columns]


def _held(pairs: Ints, valid: Bools) -> Ints:
    """Replace moves that are not valid by holding."""
    parts = np.stack([pairs[..., 0], action.MOVES + pairs[..., 1]], axis=2)
    return np.where(np.take_along_axis(valid, parts, axis=2), pairs, 0)


def _probability(scores: Floats32, pairs: Ints, mask: Bools) -> Floats32:
    """Return the policy's probability of the moves chosen, parallelism times memory, (J, V)."""
    chosen = np.ones(mask.shape, np.float32)
    for part, index in ((scores[..., : action.MOVES], 0), (scores[..., action.MOVES :], 1)):
        odds = np.exp(part - part.max(axis=2, keepdims=True))
        odds /= odds.sum(axis=2, keepdims=True)
        chosen *= np.take_along_axis(odds, pairs[..., index : index + 1], axis=2)[..., 0]
    return np.where(mask, chosen, np.float32(1.0))


def _reason(snapshot: MetricsSnapshot, pairs: Ints, job: int) -> str:
    """Describe the moves other than holding."""
    said = []
    for v, name in enumerate(snapshot.topology.names(job)):
        move, memory = pairs[job, v]
        if move:
            said.append(f"{name}: {action.MOVE_NAMES[move]}")
        if memory:
            said.append(f"{name}: memory {action.MEMORY_NAMES[memory]}")
    return ", ".join(said)


def _refuse_other_spaces(
    document: PolicyDocument, weights: Mapping[str, Floats32], file: Path
) -> None:
    """Refuse a network whose features, actions or weights differ from this release's.

    Raises:
        PolicyError: They differ; the message names the difference.
    """
    of_job = document.action.space == "capacity"
    vertex, job = ((), CAPACITY_FEATURES) if of_job else (VERTEX_FEATURES, JOB_FEATURES)
    moves, memory = ((), ()) if of_job else (action.MOVE_NAMES, action.MEMORY_NAMES)
    kappas = tuple(f"{kappa:g}" for kappa in KAPPAS) if of_job else ()
    for key, found, expected in (
        ("observation.vertex_features", document.observation.vertex_features, vertex),
        ("observation.job_features", document.observation.job_features, job),
        ("action.moves", document.action.moves, moves),
        ("action.memory_moves", document.action.memory_moves, memory),
        ("action.kappas", tuple(f"{one:g}" for one in document.action.kappas), kappas),
    ):
        if tuple(found) == tuple(expected):
            continue
        here, there = set(expected), set(found)
        parts = [
            f"{what} {', '.join(sorted(names))}"
            for what, names in (("it lacks", here - there), ("it alone has", there - here))
            if names
        ]
        raise PolicyError(
            f"the policy has other spaces than this release: {'; '.join(parts) or 'another order'}",
            file=file,
            key=key,
            remedy="Train the policy again with this release, or use the release that made it.",
        )
    wrong = [
        name
        for name, shape in parameters(document.network).items()
        if name not in weights or weights[name].shape != shape
    ]
    if wrong:
        raise PolicyError(
            f"the weights do not fit the network it describes: {', '.join(wrong)}",
            file=file,
            key="network",
            remedy="Export or pull the policy again.",
        )
