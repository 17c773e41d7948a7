"""The loop of a run: one policy scales one job, in the simulation as on a real Flink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dsp_gym.backends.base import Backend
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.control.modes import RollBackConfig
from dsp_gym.control.permission import Permission, RollBack
from dsp_gym.control.turn import Turn
from dsp_gym.evaluation.validation import ComparedPolicy, ValidationConfig
from dsp_gym.guardrails.chain import build_for
from dsp_gym.policies.registry import make
from dsp_gym.studies.policies_on_flink.runs import ValidationCase
from dsp_gym.studies.policies_on_flink.slow_motion import SlowGuardedPolicy

_NO_ROLL_BACK = RollBackConfig(return_s=7200.0, slo_share=1.0)
"""What a policy did stands: the loop takes nothing back for it."""


@dataclass(frozen=True, slots=True)
class ValidationTotals:
    """Sums over a run; real seconds."""

    seconds: float  # of known outcome
    cost: float
    late_s: float
    down_s: float
    rescales: int
    failures: int  # decisions that failed or could not be taken


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

    def total(name: str) -> float:
        return float(np.nansum([getattr(one, name)[0] for one in known]))

    return ValidationTotals(
        seconds=total("seconds"),
        cost=total("cost"),
        late_s=total("slo_s"),
        down_s=total("down_s"),
        rescales=round(total("rescales")),
        failures=sum(any(one.stage != "clock" for one in turn.failures) for turn in taken),
    )
