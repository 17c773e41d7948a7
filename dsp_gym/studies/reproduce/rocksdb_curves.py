"""RocksDB's measured miss-ratio curves, by which the form of the block cache's model was chosen.

Each curve has its own numbers, which a calibration would find as well: its working set, its
share of cold lookups and, where index blocks are counted, their lookups. All else is shared. A
form is chosen by leaving out one curve: the shared numbers come from the others alone, the own
numbers from the curve that was left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.csv_rows import measured_rows
from dsp_gym.errors import MissingExtraError
from dsp_gym.job.cache import Blocks, lru_curve
from dsp_gym.job.spec import Popularity
from dsp_gym.studies.reproduce.registry import Check

FILE = "rocksdb_miss_ratio_curves.csv"
MEAN, WORST = 0.05, 0.12
"""Bars of the errors of a hit rate."""
DB_BENCH_KEYS, DB_BENCH_ENTRY_BYTES, BLOCK_BYTES = 20e6, 116.0, 4096.0
DB_BENCH_STATE_MIB = DB_BENCH_KEYS * (1.0 - math.exp(-1.0)) * DB_BENCH_ENTRY_BYTES / 2**20
"""As many random draws as there are keys leave 1 - 1/e of them."""
RESIDUAL_SD = 0.03
"""Expected error of a miss ratio, against which the priors weigh."""
PRIORS = {"upper_lookups": (1.0, 0.5), "level_ratio": (10.0, 0.7), "index_share": (0.005, 0.7)}
"""Middle and log width: a block per level, RocksDB's multiplier, 20 B per block of 4 KiB."""
INDEX_LOOKUPS = 1.0
"""Where an index block is looked up, it is once for each data block."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCurve:
    """One workload's miss ratios."""

    name: str
    cache_mib: Floats  # (C,)
    miss: Floats  # (C,) 0..1
    popularity: Popularity
    counts_index: bool  # index and filter blocks are among the lookups

    def blocks(self, *, hashed: bool = True, **others: float) -> Blocks:
        """The workload as its source describes it: keys hashed to blocks of 4 KiB.

        Args:
            hashed: popularities mix in blocks; else each key is cached alone.
            others: further fields of `Blocks`, such as the share of cold lookups.

        Returns:
            Blocks of db_bench's keys.
        """
        per_block = BLOCK_BYTES / DB_BENCH_ENTRY_BYTES if hashed else 1.0
        return Blocks(self.popularity, DB_BENCH_KEYS, per_block, **others)


@dataclass(frozen=True, slots=True)
class Form:
    """One candidate: which mechanisms of `Blocks` it has."""

    name: str
    hashed: bool  # popularities mix in blocks; else each key is cached alone
    shared: tuple[str, ...]  # fields of Blocks all curves share

    def indexed(self, curve: MeasuredCurve) -> bool:
        """Whether the curve's lookups of index blocks are a number of its own."""
        return curve.counts_index and "index_share" in self.shared


@dataclass(frozen=True, slots=True)
class CurveFit:
    """A form's fit to one curve."""

    curve: str
    working_set_mib: float
    blocks: Blocks
    mean_error: float  # of the miss ratio, absolute
    worst_error: float


FORMS = (
    Form("keys, one level", False, ()),
    Form("blocks, one level", True, ()),
    Form("blocks, one level, index", True, ("index_share",)),
    Form("blocks, two levels", True, ("upper_lookups", "level_ratio")),
    Form("keys, two levels, index", False, ("upper_lookups", "level_ratio", "index_share")),
    Form("blocks, two levels, index", True, ("upper_lookups", "level_ratio", "index_share")),
)
"""From what the job file says alone to what RocksDB does."""
CHOSEN = FORMS[-1]
"""The form of the simulation's caches."""


def rocksdb_curves(data: Path) -> list[Check]:
    """Check the block cache's model against the measured curves.

    Returns:
        Two checks per curve under the chosen form, and one report per form with each curve left
        out.
    """
    curves = read_curves(data)
    values, fits = fit_form(CHOSEN, curves)
    left_out = {form.name: leave_one_out(form, curves) for form in FORMS}
    errors = {
        name: sum(f.mean_error for f in found) / len(found) for name, found in left_out.items()
    }
    best = min(errors, key=lambda name: errors[name])
    shared = ", ".join(f"{name} {value:.3g}" for name, value in values.items())
    return [
        *(check for fit in fits for check in _of_curve(fit, shared)),
        Check(
            "rocksdb-curves/form",
            FILE,
            "the form with the least mean error on curves left out",
            "measured",
            best,
            f"is {CHOSEN.name}",
            best == CHOSEN.name,
            used_in_fit=True,
            note="shared numbers from the other curves, own ones from the curve left out",
        ),
        *(
            Check(
                "rocksdb-curves/left-out-" + name.replace(",", "").replace(" ", "-"),
                FILE,
                f"mean error on each curve left out: {name}",
                "measured",
                round(errors[name], 4),
                "reported",
                None,
                note="worst by curve: "
                + ", ".join(f"{f.curve} {f.worst_error:.3f}" for f in found),
            )
            for name, found in left_out.items()
        ),
        *from_job_files(curves),
    ]


def from_job_files(curves: Sequence[MeasuredCurve]) -> Iterator[Check]:
    """Compare db_bench's curves with what job files say of it, of which no number is fitted.

    Yields:
        Two reports per curve: a job file's defaults, and RocksDB's two levels.
    """
    for curve in curves:
        if not curve.name.startswith("db_bench"):
            continue
        for name, levels in (("one-level", 0.0), ("two-levels", 1.0)):
            off = predicted(curve, curve.blocks(upper_lookups=levels), DB_BENCH_STATE_MIB)
            error = np.abs(off - curve.miss)
            yield Check(
                f"rocksdb-curves/job-file-{curve.name}-{name}",
                FILE,
                f"mean error, {curve.name} from a job file: keys, bytes, popularity, "
                f"upper_lookups: {levels:g}",
                "measured",
                round(float(error.mean()), 4),
                "reported",
                None,
                note=f"worst {error.max():.3f}; no number is fitted to any curve",
            )


def _of_curve(fit: CurveFit, shared: str) -> Iterator[Check]:
    own = f"working set {fit.working_set_mib:.0f} MiB, cold {fit.blocks.cold:.1%}"
    if fit.blocks.index_lookups > 0:
        own += f", {fit.blocks.index_lookups:.2f} index blocks per data block"
    for which, error, bar in (("mean", fit.mean_error, MEAN), ("worst", fit.worst_error, WORST)):
        yield Check(
            f"rocksdb-curves/{fit.curve}-{which}",
            FILE,
            f"{which} error of the hit rate, {fit.curve}",
            "measured",
            round(error, 4),
            f"at most {bar:g}",
            round(error, 4) <= bar,
            used_in_fit=True,
            note=f"own: {own}; shared by all curves: {shared}",
        )


def read_curves(data: Path) -> list[MeasuredCurve]:
    """Read the measured curves.

    Args:
        data: folder of measured data.

    Returns:
        One curve for each workload, in the file's order.
    """
    rows: dict[str, list[tuple[float, float]]] = {}
    for row in measured_rows(data / FILE):
        rows.setdefault(row["workload"], []).append(
            (float(row["cache_bytes"]) / 2**20, float(row["miss_ratio"]))
        )
    found = []
    for name, points in rows.items():
        zipf = Popularity(form="zipf", exponent=0.6) if "zipf0.6" in name else Popularity()
        size, miss = np.array(points).T
        found.append(MeasuredCurve(name, size, miss, zipf, name.endswith("all_blocks")))
    return found


def fit_form(
    form: Form, curves: Sequence[MeasuredCurve]
) -> tuple[dict[str, float], list[CurveFit]]:
    """Fit the shared numbers of a form and the own numbers of each curve together.

    Returns:
        The shared numbers, and each curve's fit.
    """
    middle, width = np.array([PRIORS[name] for name in form.shared]).reshape(-1, 2).T
    starts = [np.log(middle), *(_own_prior(curve, form) for curve in curves)]
    cuts = np.cumsum([len(start) for start in starts])[:-1]

    def values_of(shared: Floats) -> dict[str, float]:
        return dict(zip(form.shared, np.exp(shared).tolist(), strict=True))

    def residuals(x: Floats) -> Floats:
        shared, *own = np.split(x, cuts)
        pairs = zip(curves, own, strict=True)
        off = [_off(curve, form, values_of(shared), o) for curve, o in pairs]
        return np.concatenate([(shared - np.log(middle)) / width, *off])

    shared, *own = np.split(_least(residuals, np.concatenate(starts)), cuts)
    values = values_of(shared)
    return values, [_fit_of(curve, form, values, o) for curve, o in zip(curves, own, strict=True)]


def leave_one_out(form: Form, curves: Sequence[MeasuredCurve]) -> list[CurveFit]:
    """Each curve under the shared numbers that the others alone fix.

    Returns:
        Fit each curve's own numbers only.
    """
    found = []
    for left_out in curves:
        values, _ = fit_form(form, [curve for curve in curves if curve is not left_out])
        own = _least(partial(_off, left_out, form, values), _own_prior(left_out, form))
        found.append(_fit_of(left_out, form, values, own))
    return found


def predicted(curve: MeasuredCurve, blocks: Blocks, working_set_mib: float) -> Floats:
    """Miss ratios at a curve's cache sizes.

    Returns:
        (C,) miss ratios, 0..1.
    """
    lru = lru_curve(blocks)
    return 1.0 - np.interp(curve.cache_mib / working_set_mib, lru.size, lru.overall(blocks))


def _own_prior(curve: MeasuredCurve, form: Form) -> Floats:
    """Start of the search: the cache that halves the curve's fall, and its floor."""
    floor, top = float(curve.miss[-1]), float(curve.miss[0])
    half = float(np.interp(-0.5 * (top + floor), -curve.miss, np.log(curve.cache_mib)))
    start = [half + math.log(2.0), math.log(floor / (1.0 - floor))]
    return np.array([*start, math.log(INDEX_LOOKUPS)] if form.indexed(curve) else start)


def _blocks(curve: MeasuredCurve, form: Form, values: dict[str, float], own: Floats) -> Blocks:
    """The workload under a form's shared numbers and its own."""
    fields = values | {"cold": 1.0 / (1.0 + math.exp(-own[1]))}
    if form.indexed(curve):
        fields["index_lookups"] = math.exp(own[2])
    else:
        fields.pop("index_share", None)
    return curve.blocks(hashed=form.hashed, **fields)


def _off(curve: MeasuredCurve, form: Form, values: dict[str, float], own: Floats) -> Floats:
    said = predicted(curve, _blocks(curve, form, values, own), math.exp(own[0]))
    return np.asarray((said - curve.miss) / RESIDUAL_SD)


def _fit_of(curve: MeasuredCurve, form: Form, values: dict[str, float], own: Floats) -> CurveFit:
    off = RESIDUAL_SD * np.abs(_off(curve, form, values, own))
    blocks = _blocks(curve, form, values, own)
    return CurveFit(curve.name, math.exp(own[0]), blocks, float(off.mean()), float(off.max()))


def _least(residuals: Callable[[Floats], Floats], start: Floats) -> Floats:
    try:
        from scipy.optimize import least_squares
    except ModuleNotFoundError:
        raise MissingExtraError("plan", "fitting hit curves") from None
    return np.asarray(least_squares(residuals, start, diff_step=1e-4, max_nfev=200).x)
