"""The loop of a run: one policy scales one job, in the simulation as on a real Flink."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dsp_gym.backends.base import Backend
from dsp_gym.backends.flink.local.settings import checkpoint_interval_s
from dsp_gym.backends.paced import Paced, PacedBackend
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.measured import HALF_S, MeasuredJobs
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.control.modes import RollBackConfig
from dsp_gym.control.permission import Permission
from dsp_gym.control.roll_back import RollBack
from dsp_gym.control.turn import Turn
from dsp_gym.evaluation.validation import ComparedPolicy, ValidationConfig
from dsp_gym.guardrails.chain import build_for
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.studies.policies_on_flink.runs import ValidationCase, ValidationTotals, columns
from dsp_gym.studies.policies_on_flink.slow_motion import SlowGuardedPolicy

_NO_ROLL_BACK = RollBackConfig(return_s=7200.0, slo_share=1.0)
"""What a policy did stands: the loop takes nothing back for it."""


def acting(
    config: ValidationConfig,
    case: ValidationCase,
    policy: ComparedPolicy,
    backend: Backend,
    writer: JournalWriter,
    origin_s: float,
) -> JobAutoscaler:
    """Return a loop in which a policy acts on a job, seen in slow motion.

    Args:
        config: The validation.
        case: The job.
        policy: Who decides.
        backend: The job, real or simulated.
        writer: What is written down.
        origin_s: Second 0 of the load, on the backend's clock.

    Returns:
        The loop, ready to decide.
    """
    made = make(policy.policy)
    seat = SlowGuardedPolicy(
        case.spec,
        made,
        build_for(made, policy.guardrails),
        name=policy.name,
        times=float(config.compression),
        origin_s=origin_s,
        keeps_memory=case.job.rescaling == "in-place",
    )
    run = JobAutoscaler(
        backend,
        [seat],
        writer,
        permission=Permission("active"),
        roll_back=RollBack(_NO_ROLL_BACK),
        interval_s=config.real_interval_s,
    )
    run.warm_up(backend.collector.snapshot())
    return run


def totals(turns: Iterable[Turn]) -> ValidationTotals:
    """Say what a run cost.

    Returns:
        Sums over the turns whose outcome is known.
    """
    taken = list(turns)
    known = [turn.outcome for turn in taken if turn.outcome is not None]
    sums = {
        name: float(np.nansum([getattr(one, name)[0] for one in known]))
        for name in ("seconds", "cost", "slo_s", "down_s", "rescales")
    }
    return ValidationTotals(
        seconds=sums["seconds"],
        cost=sums["cost"],
        late_s=sums["slo_s"],
        down_s=sums["down_s"],
        rescales=round(sums["rescales"]),
        failures=sum(any(one.stage != "clock" for one in turn.failures) for turn in taken),
    )


def simulate(
    config: ValidationConfig,
    case: ValidationCase,
    policy: ComparedPolicy,
    seed: int,
    outage_s: tuple[float, float, float] | None = None,
) -> ValidationTotals:
    """Play one run.

    Args:
        config: The validation.
        case: The job, its load and its start.
        policy: Who decides; it is told what the job's file says, whatever outages were observed.
        seed: Of service times, noise and outages.
        outage_s: p10, p50 and p90 of those observed; None: as the job's file says.

    Returns:
        What it cost.
    """
    window = config.real_window
    options = SimulationOptions(
        measurement=Measurement(
            window_s=window.window_s,
            stabilization_s=window.stabilization_s,
            counts_times=True,
            delay_s=SAMPLE_S * round(config.cluster.scrape_interval_s / SAMPLE_S),
        ),
        threads=1,
        warms_each_second=True,
        checkpoint_interval_s=checkpoint_interval_s(config.cluster_of(case.job.rescaling)),
    )
    jobs = SimulatedJobs(case.with_outage(outage_s).topology, options)
    parallelism, level = columns(case.start, case.topology)
    jobs.reset(
        np.array([seed], np.int64), case.rates[None, :], parallelism=parallelism, memory_level=level
    )
    measured = MeasuredJobs(
        jobs,
        remembers_s=config.latency_s,
        sample_s=max(1, round(config.cluster.scrape_interval_s)),
        shortened_s=0.0 if outage_s is None else HALF_S,
    )
    backend = Paced([PacedBackend(measured, 0.0, float(config.seconds))], apply=True)
    writer = JournalWriter(None, case.spec.job, policy.name)
    run = acting(config, case, policy, backend, writer, 0.0)
    return totals(run.turn() for _ in range(config.seconds // config.real_interval_s))
