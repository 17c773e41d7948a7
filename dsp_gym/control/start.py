"""An autoscaler from its configuration: what can be wrong is found before the first decision."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsp_gym.backends.base import Backend, Clock, OnEvent
from dsp_gym.backends.discovery.names import safe_stem
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.backend_of import Substitute, connected
from dsp_gym.control.config import RunConfig
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.incumbent import Incumbent
from dsp_gym.control.journal_writer import JournalWriter, listener
from dsp_gym.control.modes import ACTING, INCUMBENT, WRITING, Mode, NamedPolicyConfig
from dsp_gym.control.permission import Permission
from dsp_gym.control.recovery import Recovery
from dsp_gym.control.restraint import Restraint
from dsp_gym.control.roll_back import RollBack
from dsp_gym.control.state_store import StateStore
from dsp_gym.control.turn import Hooks
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.config import GuardrailsConfig, policies_of
from dsp_gym.guardrails.shadow import Shadows
from dsp_gym.guardrails.slots import bounded
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.pins import split_pin
from dsp_gym.policies.registry import is_pinned, make
from dsp_gym.records.finishing import wait_until_finished
from dsp_gym.records.journal import Journal
from dsp_gym.records.rescales import unfinished

if TYPE_CHECKING:
    from dsp_gym.backends.kubernetes.connection import Followed


def job_of(config: RunConfig) -> JobSpec:
    """Load the job file of a run.

    Returns:
        The job, with the objective of the run.
    """
    spec = load_job(config.job)
    return spec if config.slo is None else spec.model_copy(update={"slo": config.slo})


def journal_folder(config: RunConfig) -> Path:
    """Name the folder of the job's journal.

    Returns:
        A folder inside the configuration's `journal`. The name of a job that is no name of a
        folder, as with a slash in it, is made one, and a checksum tells it from others.
    """
    name = config.job_name or job_of(config).job
    stem = safe_stem(name)
    if stem != name:
        stem = f"{stem}-{zlib.crc32(name.encode()):08x}"
    return config.journal / stem


def mode_of(config: RunConfig, *, apply: bool, asked: bool = False) -> Mode:
    """Decide how far the acting policy may go: nothing acts without `--apply`.

    Args:
        config: what to run, with its mode.
        apply: whether `--apply` is given.
        asked: whether the mode stands on the command line, too.

    Returns:
        With `--apply` the mode of the configuration, active where it names none. Without it shadow,
        or off.

    Raises:
        ConfigError: `--apply` is given with a mode that writes nothing, or a mode that writes is
            asked for without it.
    """
    mode = config.mode
    if apply and "mode" not in config.model_fields_set:
        return "active"
    if apply and mode not in WRITING:
        raise ConfigError(
            f"mode {mode} writes nothing, so there is nothing to apply",
            key="mode",
            value=mode,
            remedy="Leave --apply out, or take mode: advise, canary or active.",
        )
    if asked and mode in WRITING and not apply:
        what = "rescales the job" if mode in ACTING else "writes events on the job"
        raise ConfigError(
            f"mode {mode} {what}, and --apply is missing",
            key="mode",
            value=mode,
            remedy="Add --apply, or take mode: shadow, which writes nothing.",
        )
    return "shadow" if mode in WRITING and not apply else mode


def check_alone(config: RunConfig, mode: Mode, *, sole: bool) -> None:
    """Refuse to act where a second process would see nothing of this one.

    Args:
        config: what to run.
        mode: how far the acting policy may go.
        sole: whether somebody vouches that no other process acts on the job.

    Raises:
        ConfigError: The mode acts on a plain Flink, and neither a lease is named nor `sole` given.
    """
    where = config.where
    if mode not in ACTING or sole or where.lease is not None or where.kubernetes is not None:
        return
    raise ConfigError(
        "processes that act on one job undo each other's changes, and no lease keeps them apart",
        key="where.lease",
        remedy="Name a folder that all of them may write to, such as where: {lease: "
        "/shared/leases}, or add --sole if no other process acts on the job.",
    )


def policy_names(config: RunConfig) -> list[str]:
    """Name the policies of a run.

    Returns:
        Their names, in order.

    Raises:
        ConfigError: Two have one name, or none is called as `acting` says.
    """
    names = [name for name, _ in named_policies(config)]
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
            "is not one of the policies",
            key="acting",
            value=acting,
            remedy=did_you_mean(acting, [name for name in names if name != INCUMBENT]),
        )
    return names


def acting_name(config: RunConfig) -> str:
    """Name the policy whose decision counts.

    Returns:
        Its name: the one configured, else the first policy listed that is not the incumbent.
    """
    return config.acting or next(name for name in policy_names(config) if name != INCUMBENT)


def watches_several(config: RunConfig) -> bool:
    """Find out whether labels of resources say which jobs there are.

    Returns:
        True with a selector on Kubernetes.
    """
    place = config.where.kubernetes
    return place is not None and place.selector is not None


@contextmanager
def started(
    config: RunConfig,
    *,
    mode: Mode = "shadow",
    substitute: Substitute | None = None,
    journal: Path | None = None,
    durable: bool | None = None,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
    followed: Followed | None = None,
) -> Iterator[JobAutoscaler]:
    """Start an autoscaler; when the block ends, nothing is under way and the job runs.

    Args:
        config: what to run.
        mode: how far the acting policy may go.
        substitute: a recording or a simulation in place of the configuration's cluster.
        journal: folder of the journal; default: the configuration's.
        durable: whether every decision waits for the disk; None: where something real is decided.
        hooks: receive its turns, and end it, as the clock's `stop` does.
        clock: Unix seconds, how a real job is waited for, and what ends the run.
        followed: an API server that is shared with the runs of other jobs; None: its own.

    Yields:
        The autoscaler, ready to decide.

    Raises:
        DspGymError: The configuration is wrong, or the job cannot be reached.
    """
    made, spec = _made(config), job_of(config)
    acting, clock, hooks = acting_name(config), clock or Clock(), hooks or Hooks()
    folder, is_real = journal or journal_folder(config), substitute is None
    with ExitStack() as stack:
        if is_real:
            wait_until_finished(folder, clock.stop.is_set)
        written = Journal(
            folder, max_mib=config.journal_max_mib, durable=is_real if durable is None else durable
        )
        only = made[0][0] if len(made) == 1 else None
        writer = JournalWriter(
            stack.enter_context(written), config.job_name or spec.job, only, clock.now
        )
        step = listener(writer, acting, hooks.on_event)
        recovery = Recovery(config, spec, mode, step, clock)
        begun = unfinished(folder) if is_real else None
        left = None if begun is None else recovery.before_connecting(folder)
        backend = connected(
            config,
            spec,
            mode,
            clock,
            step,
            substitute=substitute,
            followed=followed,
            journal=folder,
            acting=acting,
        )
        stack.callback(backend.close)
        writer.clock = backend.now_s
        seen = backend.collector.snapshot()
        recovery.after_connecting(left, seen, backend.platform.written())
        ends, also = clock.stop.is_set, hooks.stopped
        hooks = replace(hooks, stopped=lambda: ends() or also())
        autoscaler = _assembled(config, mode, made, backend, seen, writer, hooks, step, is_real)
        _write_start(config, mode, writer, substitute)
        autoscaler.warm_up(seen)
        if begun is not None and mode in ACTING:
            recovery.recall(begun, autoscaler.roll_back, backend.collector.topology)
        yield autoscaler


_Made = tuple[str, NamedPolicyConfig, Policy | None]
"""A policy with its name and configuration; None: the incumbent, which the platform makes."""


def _made(config: RunConfig) -> list[_Made]:
    """Make the policies: a wrong name is refused before the cluster is asked."""
    policy_names(config)
    made: list[_Made] = []
    for name, entry in named_policies(config):
        policy = None if entry.policy == INCUMBENT else make(entry.policy)
        if policy is not None:
            build_for(policy, guardrails_of(config, entry))
        made.append((name, entry, policy))
    return made


def _assembled(
    config: RunConfig,
    mode: Mode,
    made: Sequence[_Made],
    backend: Backend,
    seen: MetricsSnapshot,
    writer: JournalWriter,
    hooks: Hooks,
    step: OnEvent,
    is_real: bool,
) -> JobAutoscaler:
    topology, platform = backend.collector.topology, backend.platform
    max_slots = config.max_slots
    if is_real and max_slots is None:
        max_slots = platform.slots(Configuration.of_row(seen, seen.topology).parallelism)
    policies = []
    for name, entry, policy in made:
        rules = guardrails_of(config, entry)
        if is_real and max_slots is not None:
            rules = bounded(rules, topology.spec(0), max_slots)
        policies.append(
            GuardedPolicy(Incumbent(platform.advice), name=name)
            if policy is None
            else guarded(config, name, policy, rules, timeout_s=config.decide_timeout_s)
        )
    permission = Permission(
        mode, config.canary, config.stop_file, platform.stopped, platform.unsettled
    )
    roll_back, restraint, store = RollBack(config.roll_back), Restraint(config.restraint), None
    if is_real and mode in ACTING:
        folder, lease = writer.folder, platform.leadership
        assert folder is not None  # a run has a journal
        store = StateStore(
            folder, topology, permission, roll_back, restraint, policies, lease, step
        )
    return JobAutoscaler(
        backend,
        policies,
        writer,
        acting=acting_name(config),
        permission=permission,
        roll_back=roll_back,
        restraint=restraint,
        store=store,
        interval_s=config.interval_s,
        seed=config.seed,
        hooks=hooks,
    )


def _write_start(
    config: RunConfig, mode: Mode, writer: JournalWriter, substitute: Substitute | None
) -> None:
    body = {
        # As it was given: a part is known by its `kind`, which is a default of its model.
        "configuration": config.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "version": version("dsp-gym"),
        "mode": mode,
        "simulated": substitute is not None and substitute.load is not None,
    }
    writer.step("started", body)


def named_policies(config: RunConfig) -> list[tuple[str, NamedPolicyConfig]]:
    """Name the policies of a run.

    Returns:
        Name and configuration of each, in order.

    Raises:
        ConfigError: One has no digest where the run asks for them.
    """
    _refuse_unproven(config)
    found = []
    for entry in config.all_policies:
        policy = entry.policy
        if isinstance(policy, PolicyConfig):
            named = policy.policy
        else:
            path = Path(split_pin(policy)[0])
            named = path.resolve().name if path.is_dir() else path.stem
        found.append((entry.name or named, entry))
    return found


def _refuse_unproven(config: RunConfig) -> None:
    """Refuse a trained policy from a folder without a digest where the run asks for one."""
    for key, policy in _asked(config):
        if config.pinned and not is_pinned(policy):
            raise ConfigError(
                "is a trained policy without a digest, and pinned: true asks for one",
                key=key,
                value=policy if isinstance(policy, str) else policy.params["path"],
                remedy="Name it as FOLDER@sha256:..., with the digest that dsp-gym policy show "
                "prints.",
            )


def _asked(config: RunConfig) -> Iterator[tuple[str, str | PolicyConfig]]:
    """List every policy of a run, and the key that names it: those of guardrails decide, too."""
    if config.fallback is not None:
        yield "fallback", config.fallback
    for entry in config.all_policies:
        if entry.policy != INCUMBENT:
            yield "policy", entry.policy
            for kind, policy in policies_of(guardrails_of(config, entry)):
                yield f"guardrails.{kind}.policy", policy


def guardrails_of(config: RunConfig, entry: NamedPolicyConfig) -> str | GuardrailsConfig | None:
    """Find the guardrails of one policy.

    Returns:
        The policy's own guardrails where it has some, else those of the run; None for no
        guardrails.
    """
    return entry.guardrails if entry.has_own_guardrails else config.guardrails


def guarded(
    config: RunConfig,
    name: str,
    policy: Policy,
    rules: str | GuardrailsConfig | None,
    timeout_s: float | None,
    **given: Any,
) -> GuardedPolicy:
    """Put a policy behind guardrails and the fallback of the run.

    Args:
        config: the run.
        name: of the policy in journal, status and metrics.
        policy: decides.
        rules: what its decisions pass through; None: nothing.
        timeout_s: longest wait for a decision; None: no limit.
        given: further arguments of `GuardedPolicy`.

    Returns:
        The policy; it starts on a job with `reset`.
    """
    replacement = None if config.fallback is None else Shadows().of(config.fallback, "run")
    return GuardedPolicy(
        policy,
        build_for(policy, rules),
        name=name,
        replacement=replacement,
        timeout_s=timeout_s,
        **given,
    )
