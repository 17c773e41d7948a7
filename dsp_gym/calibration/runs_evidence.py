"""What a fit to recorded runs saw, and its error on what it left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dsp_gym.calibration.errors import Compared
from dsp_gym.calibration.evidence import (
    LeftOut,
    SeenRate,
    distances_from,
    error_of,
    folds,
    predictions_left_out,
    ranges_of,
    run_folds,
    what_folds_leave_out,
)
from dsp_gym.calibration.fit import fit
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.spec import JobSpec


def evidence_of(
    spec: JobSpec, compared: Sequence[Compared], command: str, *, refit: bool = True
) -> Evidence | None:
    """The ranges of the fitted runs; the error on held-out ones, and of fits that left some out.

    Only parts at the job's capacity count: elsewhere the rate is the offered one, which anything
    predicts.

    Args:
        spec: the job before the fit: its priors are those of every fit.
        compared: every steady part beside the prediction of the whole fit.
        command: what made the fit.
        refit: also fit with some of the fitted runs left out.

    Returns:
        The section `fitted` of the job file; None where no fitted run was saturated.
    """
    at_capacity = [c for c in compared if c.in_fit and c.seen.saturated]
    if not at_capacity:
        return None
    parts = [c.seen for c in at_capacity]
    fitted = [math.log(c.predicted.rate_per_s / c.seen.rate_per_s) for c in at_capacity]
    paced = [c.seen for c in compared if c.in_fit and not c.seen.saturated]
    seen = [seen_rate(spec, part) for part in parts]
    ranges = ranges_of(spec, seen, command)
    predictions = _held_out(spec, seen, [c for c in compared if not c.in_fit and c.at_capacity])

    def predict_from(rows: Sequence[int]) -> Callable[[int], float]:
        kept = [parts[i] for i in rows]
        known = {part.configuration for part in kept}
        alike = [part for part in paced if part.configuration in known]
        model = fit(spec, [*kept, *alike]).model()
        return lambda i: model.predict(parts[i]).rate_per_s

    what = "runs held out"
    if refit:
        folded = what_folds_leave_out(seen)
        what = f"{what}; {folded}" if predictions else folded
        predictions += predictions_left_out(spec, seen, predict_from, folds(seen))
        predictions += predictions_left_out(spec, seen, predict_from, run_folds(seen), by_run=True)
    return ranges.model_copy(update={"error": error_of(predictions, what, fitted=fitted)})


def seen_rate(spec: JobSpec, part: SteadyPart) -> SeenRate:
    """A saturated part of a run as evidence.

    Returns:
        Its configuration, rate and skew.
    """
    return SeenRate(
        {v.name: part.parallelism.get(v.name, v.parallelism) for v in spec.vertices},
        {
            v.name: part.managed_mib(v.name, spec.memory.base_mib)
            for v in spec.vertices
            if v.state is not None and v.name in part.level
        },
        part.rate_per_s,
        dict(part.hottest),
    )


def _held_out(spec: JobSpec, seen: Sequence[SeenRate], others: Sequence[Compared]) -> list[LeftOut]:
    """Predictions of the whole fit for runs it had not seen."""
    if not others:
        return []
    rates = [c.predicted.rate_per_s for c in others]
    distance = distances_from(spec, seen, [seen_rate(spec, c.seen) for c in others], rates)
    return [
        LeftOut(float(far), float(memory), math.log(rate / c.seen.rate_per_s))
        for c, rate, far, memory in zip(others, rates, distance.far, distance.memory, strict=True)
    ]
