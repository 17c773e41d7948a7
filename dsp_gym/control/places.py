"""Where a run's job is: a Flink cluster, Kubernetes, a simulation, a recording."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import ACTING, WRITING, Mode
from dsp_gym.control.run import Turn, WatchedJobs
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import MetricsSnapshot

if TYPE_CHECKING:
    from dsp_gym.backends.kubernetes.connection import Followed
    from dsp_gym.control.paced import PacedJobs

__all__ = ["Elsewhere", "Opened", "must_only_read", "opened"]

OnEvent = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A place that stands in for the configuration's cluster: nothing real is touched there."""

    recording: Path | None = None
    run: str | None = None  # of the recording; None: all complete ones
    load: str | None = None  # of a simulated job
    duration_s: int = 86_400  # of that load
    speed: float | None = None  # None: as fast as can be
    skip_s: int = 0  # that pass before the first decision


@dataclass(frozen=True, slots=True)
class Opened:
    """A job that is there, and what else is known of its place."""

    jobs: WatchedJobs
    clock: Callable[[], float]
    namespace: str
    seen: MetricsSnapshot  # the first one
    max_slots: int | None = None  # what the place has; None: it has no bound
    is_over: Callable[[], bool] = field(default=lambda: False)
    stopped: Callable[[], str | None] = field(default=lambda: None)  # by somebody
    unsettled: Callable[[], str | None] = field(default=lambda: None)  # for a moment
    advice: Callable[[], Mapping[str, int] | None] | None = None  # of a built-in autoscaler
    managed: Callable[[], str | None] = field(default=lambda: None)  # how it scales the job
    report: Callable[[Turn], None] | None = None  # tells a decision on the job itself


@contextmanager
def opened(
    config: RunConfig,
    spec: JobSpec,
    *,
    mode: Mode,
    elsewhere: Elsewhere | None = None,
    on_event: OnEvent,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] | None = None,
    stop: threading.Event | None = None,
    followed: Followed | None = None,
) -> Iterator[Opened]:
    """The job, ready to be looked at; when the block ends, nothing is under way and it runs.

    Raises:
        DspGymError: It cannot be reached, or is another one.
    """
    if elsewhere is not None:
        paced = _elsewhere(elsewhere, config, spec, stop)
        if elsewhere.skip_s:
            paced.advance(elsewhere.skip_s)
        seen = paced.snapshot()
        yield Opened(paced, paced.clock, "", seen, None, lambda: paced.done)
        return
    if config.where.kubernetes is not None:
        with _on_kubernetes(
            config,
            spec,
            config.where.kubernetes,
            mode=mode,
            on_event=on_event,
            clock=clock,
            sleep=sleep,
            stop=stop,
            followed=followed,
        ) as found:
            yield found
        return
    # Each place is imported where it is the one: a shadow on Kubernetes simulates nothing.
    from dsp_gym.backends.flink.connection import reach, watched
    from dsp_gym.backends.flink.slots import slots_within_reach

    place = reach(config.where)
    jobs = watched(
        place,
        spec,
        config.job_name or spec.job,
        config.window,
        apply=mode in ACTING,
        on_event=on_event,
        clock=clock,
        sleep=sleep,
        stop=stop,
    )
    try:
        seen = jobs.snapshot()
        running = dict(zip(seen.topology.names(0), seen.parallelism[0].tolist(), strict=False))
        slots = config.max_slots or slots_within_reach(place.rest, spec, running)
        yield Opened(jobs, clock, "", seen, slots)
    finally:
        jobs.close()


def must_only_read(config: RunConfig, mode: Mode) -> bool:
    """Whether an account on Kubernetes that could write is refused."""
    return mode not in WRITING and not config.allow_writable_account


@contextmanager
def _on_kubernetes(
    config: RunConfig,
    spec: JobSpec,
    place: KubernetesPlace,
    *,
    mode: Mode,
    on_event: OnEvent,
    clock: Callable[[], float],
    sleep: Callable[[float], object] | None,
    stop: threading.Event | None,
    followed: Followed | None,
) -> Iterator[Opened]:
    from dsp_gym.backends.kubernetes.connection import watched_on_kubernetes
    from dsp_gym.control.reports import Reports

    jobs = watched_on_kubernetes(
        place,
        spec,
        config.window,
        apply=mode in ACTING,
        must_only_read=must_only_read(config, mode),
        followed=followed,
        on_event=on_event,
        clock=clock,
        sleep=sleep,
        stop=stop,
    )
    reports = Reports(jobs, mode, clock) if mode in WRITING else None

    def stopped() -> str | None:
        resource = jobs.resource
        return None if resource is None else resource.reason_not_to_write()

    def managed() -> str | None:
        resource = jobs.resource
        if resource is None or resource.builtin_autoscaler != "on":
            return None
        return f"the operator's own autoscaler scales {resource}: job.autoscaler.enabled"

    try:
        yield Opened(
            jobs,
            clock,
            place.namespace,
            jobs.snapshot(),
            config.max_slots,
            stopped=stopped,
            unsettled=jobs.stopped,
            advice=jobs.advice,
            managed=managed,
            report=None if reports is None else reports.decided,
        )
    finally:
        jobs.close()


def _elsewhere(
    where: Elsewhere, config: RunConfig, spec: JobSpec, stop: threading.Event | None
) -> PacedJobs:
    from dsp_gym.control.paced import replayed, simulated

    if where.recording is not None:
        return replayed(
            where.recording, spec, config.window, run=where.run, speed=where.speed, stop=stop
        )
    return simulated(
        spec,
        where.load or "diurnal",
        config.window,
        seed=config.seed,
        duration_s=where.duration_s,
        speed=where.speed,
        stop=stop,
    )
