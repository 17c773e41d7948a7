"""What a fit to measured throughput saw, and its error on what it left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dsp_gym.calibration.evidence import (
    SeenRate,
    error_of,
    folds,
    predictions_left_out,
    ranges_of,
    what_folds_leave_out,
)
from dsp_gym.calibration.mst_fit import MstFit, refit
from dsp_gym.calibration.mst_tables import MstRun
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.memory import managed_mib_per_slot
from dsp_gym.job.spec import JobSpec

__all__ = ["evidence_of", "seen_rate"]


def evidence_of(fit: MstFit, spec: JobSpec, command: str) -> Evidence:
    """The ranges of the measured runs, and the error of fits that left some of them out.

    Runs with too little memory for the job's state are beyond the ranges: what they carried is
    not what the next such run will.

    Args:
        fit: the fit to all of them.
        spec: the job file made from it.
        command: what made it.

    Returns:
        The section `fitted` of the job file.
    """
    runs = fit.measurements.runs
    seen = [seen_rate(fit, spec, run) for run in runs]

    def predict_from(rows: Sequence[int]) -> Callable[[int], float]:
        model = refit(fit, [runs[i] for i in rows])
        return lambda i: model.mst_per_s(runs[i].parallelism, runs[i].memory_mib)

    predictions = predictions_left_out(spec, seen, predict_from, folds(seen))
    error = error_of(predictions, what_folds_leave_out(seen))
    return ranges_of(spec, seen, command).model_copy(update={"error": error})


def seen_rate(fit: MstFit, spec: JobSpec, run: MstRun) -> SeenRate:
    """A measured run as evidence.

    Returns:
        Its configuration and rate; starved where less memory than enough costs it throughput.
    """
    managed = managed_mib_per_slot(run.memory_mib, fit.model.slots_per_taskmanager)
    names = [operator.name for operator in fit.measurements.operators]
    return SeenRate(
        dict(zip(names, run.parallelism, strict=True)),
        {v.name: managed for v in spec.vertices if v.state is not None},
        run.mst_per_s,
        starved=fit.model.memory is not None and run.memory_mib < fit.enough_mib,
    )
