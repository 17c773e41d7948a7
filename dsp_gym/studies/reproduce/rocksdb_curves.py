"""RocksDB's measured miss-ratio curves beside the block cache's model."""

from __future__ import annotations

from pathlib import Path

from dsp_gym.studies.fitting.rocksdb_curves import (
    FILE,
    FORMS,
    CurveFit,
    fit_form,
    leave_one_out,
    read_curves,
)
from dsp_gym.studies.reproduce.registry import Check, needs

MEAN, WORST = 0.05, 0.12
CHOSEN = FORMS[-1]
"""The form of the simulation's caches."""


@needs(FILE, "rocksdb-curves/fit", FILE, "hit rates of a block cache at 21 sizes", "4 curves")
def rocksdb_curves(data: Path) -> list[Check]:
    """Check the block cache's model against the measured curves.

    Returns:
        Two checks per curve under the chosen form, and one report per form with each curve left
        out.
    """
    curves = read_curves(data)
    values, fits = fit_form(CHOSEN, curves)
    left_out = {form.name: leave_one_out(form, curves) for form in FORMS}
    shared = ", ".join(f"{name} {value:.3g}" for name, value in values.items())
    checks = [check for fit in fits for check in _of_curve(fit, shared)]
    errors = {name: _mean(found) for name, found in left_out.items()}
    best = min(errors, key=lambda name: errors[name])
    checks.append(
        _check(
            "form",
            "the form with the least mean error on curves left out",
            best,
            f"is {CHOSEN.name}",
            best == CHOSEN.name,
            "shared numbers from the other curves, own ones from the curve left out",
            used_in_fit=True,
        )
    )
    return checks + [_of_form(name, found) for name, found in left_out.items()]


def _of_curve(fit: CurveFit, shared: str) -> list[Check]:
    own = f"working set {fit.working_set_mib:.0f} MiB, cold {fit.cold:.1%}"
    if fit.index_lookups > 0:
        own += f", {fit.index_lookups:.2f} index blocks per data block"
    note = f"own: {own}; shared by all curves: {shared}"
    mean, worst = round(fit.mean_error, 4), round(fit.worst_error, 4)
    name = fit.curve
    return [
        _check(
            f"{name}-mean",
            f"mean error of the hit rate, {name}",
            mean,
            f"at most {MEAN:g}",
            mean <= MEAN,
            note,
            used_in_fit=True,
        ),
        _check(
            f"{name}-worst",
            f"worst error of the hit rate, {name}",
            worst,
            f"at most {WORST:g}",
            worst <= WORST,
            note,
            used_in_fit=True,
        ),
    ]


def _of_form(name: str, found: list[CurveFit]) -> Check:
    note = "worst by curve: " + ", ".join(f"{f.curve} {f.worst_error:.3f}" for f in found)
    claim = f"mean error on each curve left out: {name}"
    slug = "left-out-" + name.replace(",", "").replace(" ", "-")
    return _check(slug, claim, round(_mean(found), 4), "reported", None, note)


def _mean(found: list[CurveFit]) -> float:
    return sum(fit.mean_error for fit in found) / len(found)


def _check(
    name: str,
    claim: str,
    ours: float | str,
    tolerance: str,
    passed: bool | None,
    note: str,
    *,
    used_in_fit: bool = False,
) -> Check:
    return Check(
        f"rocksdb-curves/{name}",
        FILE,
        claim,
        "measured",
        ours,
        tolerance,
        passed,
        used_in_fit,
        note,
    )
