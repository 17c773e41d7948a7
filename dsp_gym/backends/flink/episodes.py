"""Episodes of an environment on a real Flink cluster: each is a separate job."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats, Ints
from dsp_gym.backends.base import Backend, Episode
from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.connection import connect, reach, slots_within_reach
from dsp_gym.backends.flink.rest import ENDED, FlinkRest, until_timeout
from dsp_gym.backends.flink.submission import Submission, load_arguments
from dsp_gym.config import files
from dsp_gym.errors import FlinkError
from dsp_gym.job.placement import slots_of
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig

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


def place_of(where: str | Path | Mapping[str, object] | None) -> FlinkPlace:
    """The place meant by the keyword `where`: a cluster's home folder, or its settings.

    Returns:
        The checked settings; the default ones where `where` is None.
    """
    if where is None:
        return FlinkPlace()
    if isinstance(where, Mapping):
        return files.parse(FlinkPlace, dict(where), "where")
    return FlinkPlace(home=Path(where))


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What the job of an episode is submitted with."""

    load: str  # its name, for people
    rates: Floats  # (seconds,) records/s
    parallelism: Ints  # (1, V)
    memory_level: Ints  # (1, V)


class FlinkEpisodes:
    """Submits the job again for every episode, and cancels it afterwards.

    Args:
        spec: the job; its file has a `flink` section.
        place: the cluster.
        window: the metrics window, over which samples are averaged.
        start: draws the start of an episode from its seed.
    """

    def __init__(
        self,
        spec: JobSpec,
        place: FlinkPlace,
        window: WindowConfig,
        start: Callable[[int], Start],
    ) -> None:
        self.topology = Topology.of([spec])
        self.place = reach(place)
        self.job_name = f"{spec.job}-env-{uuid.uuid4().hex[:8]}"
        self._spec, self._window, self._start = spec, window, start
        Submission.of_spec(spec, {}, self.job_name).program  # noqa: B018  # refuses a job without one
        self._loads = Path(tempfile.mkdtemp(prefix="dsp-gym-loads-"))
        self._backend: Backend | None = None
        # Episodes that are never closed give their slots back when they, or the program, end.
        self._undo = weakref.finalize(self, _clean, self.place.rest, self.job_name, self._loads)

    def begin(self, seed: int) -> Episode:
        """Cancel the job of the last episode and submit the next.

        Returns:
            The job, its load and the slots within its reach.

        Raises:
            FlinkError: The cluster has too few slots, or the job does not come up.
        """
        self._end_job()
        start = self._start(seed)
        tables, names = self.topology.tables, self.topology.names(0)
        low, high = tables.min_parallelism, tables.max_parallelism
        wanted = _named(names, np.clip(start.parallelism, low, high)[0])
        free = _free_slots(self.place.rest, slots_of(wanted, shared=self._spec.slot_sharing))
        configuration = Configuration(
            _within(self._spec, wanted, _named(names, low[0]), free),
            _named(names, start.memory_level[0]),
        )
        # The clock of the load begins now; what is due before the job runs is its first backlog.
        load = load_arguments(start.rates, self._loads, round(time.time() * 1000))
        submission = Submission.of_spec(
            self._spec, load | {"seed": str(seed % 2**31)}, self.job_name
        )
        submission.submit(self.place.rest, configuration)
        slots = slots_within_reach(self.place.rest, self._spec, configuration.parallelism)
        self._backend = connect(self.place, self._spec, self.job_name, self._window, apply=True)
        return Episode(self._backend, start.load, slots)

    def close(self) -> None:
        """Cancel the job of the last episode, and no other."""
        self._end_job()
        self._undo()

    def _end_job(self) -> None:
        if self._backend is not None:
            self._backend.close()
            self._backend = None
        _cancel(self.place.rest, self.job_name)


def _named(names: tuple[str, ...], values: Ints) -> dict[str, int]:
    return dict(zip(names, values[: len(names)].tolist(), strict=True))


def _free_slots(rest: FlinkRest, wanted: int) -> int:
    """Slots that are free; those of a job that has just ended come free a moment later."""
    for _ in until_timeout(SLOTS_S, 0.5):
        free = rest.free_slots()
        if free >= wanted:
            break
    return free


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
    """End the job of that name, which is ours alone."""
    for job in rest.jobs():
        if job.name == name and job.state not in ENDED:
            rest.cancel(job.id)
            rest.wait_for(job.id, ENDED, CANCEL_S)


def _clean(rest: FlinkRest, name: str, loads: Path) -> None:
    with contextlib.suppress(FlinkError):  # a cluster that is gone has no job of ours
        _cancel(rest, name)
    shutil.rmtree(loads, ignore_errors=True)
