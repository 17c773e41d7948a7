"""A real Flink job as an environment: seconds are real seconds, decisions are enacted."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.connection import reach, watched
from dsp_gym.backends.flink.live_jobs import LiveJobs
from dsp_gym.backends.flink.rest import ENDED, FlinkRest
from dsp_gym.backends.flink.slots import bounded, slots_within_reach
from dsp_gym.backends.flink.submission import Submission, load_arguments
from dsp_gym.config import files
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.core import MeasuredEnv, SteppedJobs
from dsp_gym.envs.episodes import Draws, EpisodeSource, start_configuration
from dsp_gym.errors import FlinkError
from dsp_gym.guardrails.chain import build
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.placement import slots_of
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.splits import LoadSet, SplitName
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import PENDING
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig

__all__ = ["FlinkEnv", "FlinkPlace", "place_of"]


CANCEL_S = 60.0
"""Longest wait for a job of our own to end, s."""

SLOTS_S = 10.0
"""Longest wait for the slots of a job that has ended, s."""


class FlinkPlace(PlaceConfig):
    """Where the environment's job runs, and how fast its load passes."""

    compression: float = Field(
        1.0,
        gt=0,
        le=60,
        description="seconds of the load that pass in one real second; 3: an hour in 20 minutes",
    )


def place_of(where: str | Path | Mapping[str, Any] | None) -> FlinkPlace:
    """The place meant by the keyword `where`: a cluster's home folder, or its settings."""
    if where is None:
        return FlinkPlace()
    if isinstance(where, Mapping):
        return files.parse(FlinkPlace, dict(where), "where")
    return FlinkPlace(home=Path(where))


class FlinkEnv(MeasuredEnv):
    """One environment over a job it submits itself, anew for every episode.

    Args:
        spec: the job; its file has a `flink` section.
        loads: where episodes take their loads from.
        split: which part of the loads.
        config: clock, start, reward; of the simulation only how metrics are averaged.
        guardrails: name, path or content of the guardrails inside the environment; the slots
            within reach are bounded with or without them.
        place: the cluster.
        base_dir: where relative trace paths start.
    """

    def __init__(
        self,
        spec: JobSpec,
        loads: LoadSet,
        split: SplitName,
        config: EnvConfig,
        guardrails: str | GuardrailsConfig | None,
        place: FlinkPlace,
        base_dir: str | Path | None = None,
    ) -> None:
        topology = Topology.of([spec])
        super().__init__(topology, config)
        self.spec = spec
        self._rules = guardrails
        self.place = reach(place)
        self.job_name = f"{spec.job}-env-{uuid.uuid4().hex[:8]}"
        Submission.of_spec(spec, {}, self.job_name).program  # noqa: B018  # refuses a job without one
        self.source = EpisodeSource(topology, loads, split, config, base_dir, place.compression)
        seen = config.simulation.measurement
        self._window = WindowConfig(window_s=seen.window_s, stabilization_s=seen.stabilization_s)
        self._loads = Path(tempfile.mkdtemp(prefix="dsp-gym-loads-"))
        self._jobs: LiveJobs | None = None
        # An environment that nobody closes gives its slots back when it, or the program, ends.
        self._undo = weakref.finalize(self, _clean, self.place.rest, self.job_name, self._loads)

    @property
    def stepped(self) -> SteppedJobs:
        if self._jobs is None:
            raise RuntimeError("reset() comes first")
        return self._jobs

    def seed(self, seeds: Ints, mask: Bools | None = None) -> None:
        self.source.seed(seeds, mask)

    def reset(self, mask: Bools | None = None) -> Floats32:
        self._end_job()
        rows = np.arange(1)
        drawn = self.source.draw(rows)
        self.load_labels = list(self.source.labels)
        self._submit(drawn)
        return self._begin(rows, drawn.seeds, None)

    def close(self) -> None:
        """Cancel the job this environment submitted, and no other."""
        self._end_job()
        self._undo()

    def _submit(self, drawn: Draws) -> None:
        parallelism, level = start_configuration(self.topology, self.config, drawn, np.arange(1))
        tables = self.topology.tables
        low, high = tables.min_parallelism, tables.max_parallelism
        names = self.topology.names(0)
        wanted = np.clip(parallelism, low, high)[0]
        wished = slots_of(_named(names, wanted), shared=self.spec.slot_sharing)
        free = _free_slots(self.place.rest, wished)
        configuration = Configuration(
            _within(self.spec, _named(names, wanted), _named(names, low[0]), free),
            {name: int(level[0, v]) for v, name in enumerate(names)},
        )
        # The clock of the load begins now; what is due before the job runs is its first backlog.
        load = load_arguments(drawn.rates[0], self._loads, round(time.time() * 1000))
        submission = Submission.of_spec(
            self.spec, load | {"seed": str(int(drawn.seeds[0] % 2**31))}, self.job_name
        )
        submission.submit(self.place.rest, configuration)
        slots = slots_within_reach(self.place.rest, self.spec, configuration.parallelism)
        self.guardrails = build(bounded(self._rules, self.spec, slots))
        self._jobs = watched(self.place, self.spec, self.job_name, self._window, apply=True)

    def _end_job(self) -> None:
        if self._jobs is not None:
            self._jobs.close()
            self._jobs = None
        _cancel(self.place.rest, self.job_name)

    def _ended(self, outcome: Outcome) -> tuple[Bools, Bools]:
        terminated, truncated = super()._ended(outcome)
        assert self._jobs is not None
        is_lost = self.snapshot.status[0] == Status.FAILED and self._jobs.status()[0] != PENDING
        return terminated | is_lost, truncated


def _named(names: tuple[str, ...], values: Ints) -> dict[str, int]:
    return dict(zip(names, values[: len(names)].tolist(), strict=True))


def _free_slots(rest: FlinkRest, wanted: int) -> int:
    """Slots that are free; those of a job that has just ended come free a moment later."""
    end_s = time.monotonic() + SLOTS_S
    while True:
        free = int(rest.overview()["slots-available"])
        if free >= wanted or time.monotonic() > end_s:
            return free
        time.sleep(0.5)


def _within(
    spec: JobSpec, parallelism: Mapping[str, int], lowest: Mapping[str, int], slots: int
) -> dict[str, int]:
    """The parallelism, with the largest vertices made smaller until the slots suffice."""
    fitted = dict(parallelism)
    while (taken := slots_of(fitted, shared=spec.slot_sharing)) > slots:
        can_shrink = [name for name in fitted if fitted[name] > lowest[name]]
        if not can_shrink:
            raise FlinkError(
                f"the job '{spec.job}' needs {taken} slots at least, {slots} are free",
                remedy="End another job, or start a larger cluster: dsp-gym flink up --slots N",
            )
        fitted[max(can_shrink, key=lambda name: fitted[name])] -= 1
    return fitted


def _cancel(rest: FlinkRest, name: str) -> None:
    """End the job of that name; nobody else has one."""
    for job in rest.jobs():
        if job.name == name and job.state not in ENDED:
            rest.cancel(job.id)
            rest.wait_for(job.id, ENDED, CANCEL_S)


def _clean(rest: FlinkRest, name: str, loads: Path) -> None:
    with contextlib.suppress(FlinkError):  # a cluster that is gone has no job of ours
        _cancel(rest, name)
    shutil.rmtree(loads, ignore_errors=True)
