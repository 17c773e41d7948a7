"""Where a run's job is: a Flink cluster, Kubernetes, a simulation, a recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.backends.base import Backend, Clock, OnEvent
from dsp_gym.config.files import names
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import ACTING, WRITING, Mode
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.job.spec import JobSpec
from dsp_gym.records import shipped

if TYPE_CHECKING:
    from dsp_gym.backends.kubernetes.connection import Followed


@dataclass(frozen=True, slots=True)
class Substitute:
    """A simulation or a recording in place of the cluster: nothing real is touched there."""

    recording: Path | None = None
    load: str | None = None  # of a simulated job
    duration_s: int = 86_400  # of that load
    speed: float | None = None  # None: as fast as can be
    skip_s: int = 0  # that pass before the first decision

    @classmethod
    def of(
        cls, source: str, duration_s: int = 86_400, speed: float | None = None, skip_s: int = 0
    ) -> Substitute:
        """Find the load or the recording that a command line names.

        Args:
            source: a load, by shipped name or file, or a recording, by shipped name or folder.
            duration_s: length of the load, s.
            speed: seconds of the job that pass in one real second; None: as fast as possible.
            skip_s: seconds of the job that pass before the first decision.

        Returns:
            What stands in for the cluster; a folder of that name comes before a load.

        Raises:
            ConfigError: There is neither a load nor a recording of that name.
        """
        loads, recordings = names("loads"), shipped.names("recordings")
        if Path(source).is_dir() or source in recordings:
            return cls(Path(source), None, duration_s, speed, skip_s)
        if source not in loads and not Path(source).is_file():
            raise ConfigError(
                "is neither a load nor a recording",
                key="SOURCE",
                value=source,
                remedy=did_you_mean(source, [*loads, *recordings]),
            )
        return cls(None, source, duration_s, speed, skip_s)


def connected(
    config: RunConfig,
    spec: JobSpec,
    mode: Mode,
    clock: Clock,
    on_event: OnEvent,
    *,
    substitute: Substitute | None = None,
    followed: Followed | None = None,
    journal: Path | None = None,
    acting: str | None = None,
) -> Backend:
    """Connect to the job of a run.

    Args:
        config: the run.
        spec: its job.
        mode: how far the acting policy may go.
        clock: Unix seconds, and how a real job is waited for.
        on_event: receives every step of the actuator.
        substitute: a recording or a simulation in place of the configuration's cluster.
        followed: an API server that other jobs share; None: it is connected to here.
        journal: folder where those steps are written; None: nowhere.
        acting: name of the policy that acts, for the journal.

    Returns:
        The job as a backend; it has an actuator only in a mode that acts.

    Raises:
        DspGymError: The job cannot be reached, or is another one.
    """
    apply = mode in ACTING
    # Each backend is imported only if it is needed: a shadow on Kubernetes simulates nothing.
    if substitute is not None:
        return _substitute(substitute, config, spec, clock, apply=apply)
    if config.where.kubernetes is not None:
        from dsp_gym.backends.kubernetes import connection as kubernetes

        return kubernetes.connect(
            config.where.kubernetes, spec, config.window, apply=apply,
            must_only_read=must_only_read(config, mode), followed=followed, on_event=on_event,
            clock=clock, interval_s=config.interval_s,
        )  # fmt: skip
    from dsp_gym.backends.flink import connection as flink
    from dsp_gym.backends.flink.rescale.finisher import StepJournal

    steps = None if journal is None else StepJournal(journal, acting)
    place, name = flink.reach(config.where), config.job_name or spec.job
    return flink.connect(
        place,
        spec,
        name,
        config.window,
        apply=apply,
        on_event=on_event,
        clock=clock,
        journal=steps,
    )


def must_only_read(config: RunConfig, mode: Mode) -> bool:
    """Find out whether an account on Kubernetes that could write is refused.

    Returns:
        True in a mode that does not write, unless the configuration allows such an account.
    """
    return mode not in WRITING and not config.allow_writable_account


def _substitute(
    where: Substitute, config: RunConfig, spec: JobSpec, clock: Clock, *, apply: bool
) -> Backend:
    if where.recording is not None:
        from dsp_gym.backends.replay import connection as replay

        backend = replay.connect(
            where.recording,
            spec,
            config.window,
            speed=where.speed,
            stop=clock.stop,
        )
    else:
        from dsp_gym.backends.simulated import connection as simulated

        backend = simulated.connect(
            spec,
            where.load or "diurnal",
            config.window,
            apply=apply,
            seed=config.seed,
            duration_s=where.duration_s,
            speed=where.speed,
            stop=clock.stop,
        )
    if where.skip_s:
        backend.advance(where.skip_s)
    return backend
