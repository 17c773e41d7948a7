"""A run from its configuration: everything that can be wrong is found before the first decision."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsp_gym.backends.flink.slots import bounded
from dsp_gym.control.config import RunConfig
from dsp_gym.control.incumbent import Incumbent
from dsp_gym.control.modes import ACTING, INCUMBENT, WRITING, Mode, SeatConfig
from dsp_gym.control.notes import Notes
from dsp_gym.control.permission import Permission, RollBack
from dsp_gym.control.places import Elsewhere, Opened, opened
from dsp_gym.control.run import LiveRun, Turn
from dsp_gym.control.seat import Seat
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.guardrails.shadow import ShadowPolicy, Shadows
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.protocols import Policy
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make
from dsp_gym.records.journal import Journal

if TYPE_CHECKING:
    from dsp_gym.backends.kubernetes.connection import Followed

__all__ = [
    "acting_name",
    "guardrails_of",
    "is_of_several",
    "job_of",
    "journal_folder",
    "named_seats",
    "permitted",
    "seat_names",
    "started",
]


def job_of(config: RunConfig) -> JobSpec:
    """The job file, with the objective of the run."""
    spec = load_job(config.job)
    return spec if config.slo is None else spec.model_copy(update={"slo": config.slo})


def journal_folder(config: RunConfig) -> Path:
    """Where the journal of the run's job stands."""
    return config.journal / (config.job_name or job_of(config).job)


def permitted(config: RunConfig, *, apply: bool) -> Mode:
    """The configuration's mode, if the command line agrees with it.

    Raises:
        ConfigError: The mode writes and `--apply` is missing, or the other way round.
    """
    writes = config.mode in WRITING
    if writes and not apply:
        what = "rescales the job" if config.mode in ACTING else "writes events on the job"
        raise ConfigError(
            f"mode {config.mode} {what}, and --apply is missing",
            key="mode",
            value=config.mode,
            remedy="Add --apply, or take mode: shadow, which writes nothing.",
        )
    if apply and not writes:
        raise ConfigError(
            f"mode {config.mode} writes nothing, so there is nothing to apply",
            key="mode",
            value=config.mode,
            remedy="Leave --apply out, or take mode: advise, canary or active.",
        )
    return config.mode


def seat_names(config: RunConfig) -> list[str]:
    """What the policies are called, in order.

    Raises:
        ConfigError: Two have one name, or none is called as `acting` says.
    """
    names = [name for name, _ in named_seats(config)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two policies are called '{name}'",
                key="policies",
                remedy="Give one of them another name: {name: ..., policy: ...}",
            )
    acting = config.acting
    if acting is not None and (acting not in names or acting == INCUMBENT):
        raise ConfigError(
            "is none of the policies",
            key="acting",
            value=acting,
            remedy=did_you_mean(acting, [name for name in names if name != INCUMBENT]),
        )
    return names


def acting_name(config: RunConfig) -> str:
    """The policy whose decision counts."""
    return config.acting or next(name for name in seat_names(config) if name != INCUMBENT)


def is_of_several(config: RunConfig) -> bool:
    """Whether labels of resources say which jobs there are."""
    place = config.where.kubernetes
    return place is not None and place.selector is not None


@contextmanager
def started(
    config: RunConfig,
    *,
    apply: bool = False,
    mode: Mode | None = None,
    elsewhere: Elsewhere | None = None,
    journal: Path | None = None,
    journaled: bool = True,
    durable: bool | None = None,
    on_decision: Callable[[Turn], None] | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    on_event: Callable[[str, dict[str, Any]], None] | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] | None = None,
    stop: threading.Event | None = None,
    followed: Followed | None = None,
) -> Iterator[LiveRun]:
    """A run that is ready to decide; when the block ends, nothing is under way and the job runs.

    Args:
        config: what to run.
        apply: without `mode`: active, or as the configuration says if that writes; else shadow.
        mode: how far the acting policy may go.
        elsewhere: a recording or a simulation in place of the configuration's cluster.
        journal: folder of the journal; default: the configuration's.
        journaled: False: nothing is written down.
        durable: whether every decision waits for the disk; None: where something real is decided.
        on_decision: called with every decision when it was made.
        on_turn: called with every decision when its interval has passed.
        on_event: called with every step of the actuator, from its thread.
        clock: Unix seconds.
        sleep: waits that many seconds; None: until then, or until `stop` is set.
        stop: set by whoever wants the run to end.
        followed: an API server that is shared with the runs of other jobs; None: one of its own.
    """
    spec, names = job_of(config), seat_names(config)
    if mode is None:
        mode = (config.mode if config.mode in WRITING else "active") if apply else "shadow"
    made = [(name, seat, _policy(seat)) for name, seat in named_seats(config)]
    for _, seat, policy in made:  # a wrong name is refused before the cluster is asked
        if policy is not None:
            build_for(policy, guardrails_of(config, seat))
    acting = acting_name(config)
    stop = stop or threading.Event()
    with ExitStack() as stack:
        written = None
        if journaled:
            folder = journal or journal_folder(config)
            waits = durable if durable is not None else elsewhere is None
            lasting = Journal(folder, max_mib=config.journal_max_mib, durable=waits)
            written = stack.enter_context(lasting)
        notes = Notes(
            written, config.job_name or spec.job, names[0] if len(names) == 1 else None, clock
        )

        def step(kind: str, body: dict[str, Any]) -> None:
            notes.step(kind, body, acting)
            if on_event is not None:
                on_event(kind, body)

        opening = opened(
            config,
            spec,
            mode=mode,
            elsewhere=elsewhere,
            on_event=step,
            clock=clock,
            sleep=sleep,
            stop=stop,
            followed=followed,
        )
        place = stack.enter_context(opening)
        notes.clock = place.clock
        seats = []
        for name, seat, policy in made:
            seats.append(_seat(name, seat, policy, config, place))
            stack.callback(seats[-1].close)
        permission = Permission(
            mode, config.canary, config.stop_file, place.stopped, place.unsettled
        )
        run = LiveRun(
            place.jobs,
            seats,
            notes,
            acting=acting,
            permission=permission,
            roll_back=RollBack(config.roll_back),
            interval_s=config.interval_s,
            seed=config.seed,
            clock=place.clock,
            on_decision=on_decision,
            on_turn=on_turn,
            stopped=lambda: stop.is_set() or place.is_over(),
            report=place.report,
        )
        run.namespace, run.managed = place.namespace, place.managed
        kept = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        modelled = elsewhere is not None and elsewhere.load is not None
        notes.step(
            "started",
            {
                "configuration": kept,
                "version": version("dsp-gym"),
                "mode": mode,
                "simulated": modelled,
            },
        )
        run.warm_up(place.seen)
        yield run


def named_seats(config: RunConfig) -> list[tuple[str, SeatConfig]]:
    """The policies by what they are called."""
    found = []
    for seat in config.seats:
        policy = seat.policy
        named = policy.policy if isinstance(policy, PolicyConfig) else Path(policy).stem
        if not isinstance(policy, PolicyConfig) and Path(policy).is_dir():
            named = Path(policy).resolve().name
        found.append((seat.name or named, seat))
    return found


def _policy(seat: SeatConfig) -> Policy | None:
    """The policy; None for the incumbent, which needs the place to be made."""
    return None if seat.policy == INCUMBENT else make(seat.policy)


def guardrails_of(config: RunConfig, seat: SeatConfig) -> str | GuardrailsConfig | None:
    """What the decisions of one policy pass through."""
    return seat.guardrails if seat.has_own_guardrails else config.guardrails


def _seat(
    name: str, seat: SeatConfig, policy: Policy | None, config: RunConfig, place: Opened
) -> Seat:
    if policy is None:
        return Seat(Incumbent(place.advice), name=name)
    rules = guardrails_of(config, seat)
    if place.max_slots is not None:
        rules = bounded(rules, place.jobs.spec, place.max_slots)
    replacement: ShadowPolicy | None = None
    if config.fallback is not None:
        replacement = Shadows().of(config.fallback, "run")
    return Seat(
        policy,
        build_for(policy, rules),
        name=name,
        replacement=replacement,
        timeout_s=config.decide_timeout_s,
    )
