"""A run in the simulation: the calibrated job, measured as a real one, under the same load."""

from __future__ import annotations

import numpy as np

from dsp_gym.backends.flink.local.settings import checkpoint_interval_s
from dsp_gym.backends.paced import Paced, PacedBackend
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.measured import HALF_S, MeasuredJobs
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.evaluation.validation import ComparedPolicy, ValidationConfig
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.studies.policies_on_flink.loop import ValidationTotals, acting, totals
from dsp_gym.studies.policies_on_flink.runs import ValidationCase, columns


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
    age_s = SAMPLE_S * round(config.cluster.scrape_interval_s / SAMPLE_S)
    seen = Measurement(
        window_s=window.window_s,
        stabilization_s=window.stabilization_s,
        counts_times=True,
        delay_s=age_s,
    )
    options = SimulationOptions(
        measurement=seen,
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
    run = acting(
        config, case, policy, backend, JournalWriter(None, case.spec.job, policy.name), 0.0
    )
    return totals(run.turn() for _ in range(config.seconds // config.real_interval_s))
