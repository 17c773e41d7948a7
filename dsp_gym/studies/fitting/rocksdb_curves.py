"""The form of the block cache's hit curve, chosen on measured curves of RocksDB.

Each curve has its own numbers, which a calibration would find as well: its working set, its
share of cold lookups and, where index blocks are counted, their lookups. All else is shared. A
form is chosen by leaving out one curve: the shared numbers come from the others alone, the own
numbers from the curve that was left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.csv_rows import measured_rows
from dsp_gym.errors import ConfigError, MissingExtraError
from dsp_gym.job.cache import Blocks, lru_curve
from dsp_gym.job.spec import Popularity

FILE = "rocksdb_miss_ratio_curves.csv"
MIB = 1024.0 * 1024.0
DB_BENCH_KEYS = 20e6
DB_BENCH_ENTRY_BYTES = 116.0
BLOCK_BYTES = 4096.0
RESIDUAL_SD = 0.03
"""Expected error of a miss ratio, against which the priors weigh."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCurve:
    """One workload's miss ratios."""

    name: str
    cache_mib: Floats  # (C,)
    miss: Floats  # (C,) 0..1
    popularity: Popularity
    counts_index: bool  # index and filter blocks are among the lookups

    def blocks(
        self, *, upper_lookups: float = 0.0, level_ratio: float = 10.0, cold: float = 0.0
    ) -> Blocks:
        """The workload as its source describes it: keys hashed to blocks of 4 KiB.

        Returns:
            Blocks of db_bench's keys, with the tree and the share of cold lookups given.
        """
        per_block = BLOCK_BYTES / DB_BENCH_ENTRY_BYTES
        return Blocks(
            self.popularity,
            DB_BENCH_KEYS,
            per_block,
            upper_lookups=upper_lookups,
            level_ratio=level_ratio,
            cold=cold,
        )


@dataclass(frozen=True, slots=True)
class Form:
    """One candidate: which mechanisms of `Blocks` it has."""

    name: str
    hashed: bool  # popularities mix in blocks; else each key is cached alone
    shared: tuple[str, ...]  # fields of Blocks all curves share


@dataclass(frozen=True, slots=True)
class CurveFit:
    """A form's fit to one curve."""

    curve: str
    working_set_mib: float
    cold: float
    index_lookups: float
    mean_error: float  # of the miss ratio, absolute
    worst_error: float


PRIORS = {"upper_lookups": (1.0, 0.5), "level_ratio": (10.0, 0.7), "index_share": (0.005, 0.7)}
"""Middle and log width: a block per level, RocksDB's multiplier, 20 B per block of 4 KiB."""
INDEX_LOOKUPS = 1.0
"""Where an index block is looked up, it is once for each data block."""

FORMS = (
    Form("keys, one level", False, ()),
    Form("blocks, one level", True, ()),
    Form("blocks, one level, index", True, ("index_share",)),
    Form("blocks, two levels", True, ("upper_lookups", "level_ratio")),
    Form("keys, two levels, index", False, ("upper_lookups", "level_ratio", "index_share")),
    Form("blocks, two levels, index", True, ("upper_lookups", "level_ratio", "index_share")),
)
"""From what the job file says alone to what RocksDB does."""


def read_curves(data: Path) -> list[MeasuredCurve]:
    """Read the measured curves.

    Args:
        data: folder of measured data.

    Returns:
        One curve for each workload, in the file's order.

    Raises:
        ConfigError: The file is not there.
    """
    file = data / FILE
    if not file.is_file():
        raise ConfigError("no measured curves", file=str(file), remedy="Name the folder of data.")
    rows: dict[str, list[tuple[float, float]]] = {}
    for row in measured_rows(file):
        point = (float(row["cache_bytes"]) / MIB, float(row["miss_ratio"]))
        rows.setdefault(row["workload"], []).append(point)
    found = []
    for name, points in rows.items():
        size, miss = np.array(points).T
        zipf = Popularity(form="zipf", exponent=0.6) if "zipf0.6" in name else Popularity()
        found.append(MeasuredCurve(name, size, miss, zipf, name.endswith("all_blocks")))
    return found


def fit_form(
    form: Form, curves: Sequence[MeasuredCurve]
) -> tuple[dict[str, float], list[CurveFit]]:
    """Fit the shared numbers of a form and the own numbers of each curve together.

    Returns:
        The shared numbers, and each curve's fit.
    """
    n = len(form.shared)
    starts = [_shared_prior(form)] + [_own_prior(curve, form) for curve in curves]
    cuts = np.cumsum([len(start) for start in starts])[:-1]

    def residuals(x: Floats) -> Floats:
        shared, *own = np.split(x, cuts)
        values = dict(zip(form.shared, np.exp(shared), strict=True))
        return np.concatenate(
            [_prior_residuals(form, shared)]
            + [_off(curve, form, values, o) for curve, o in zip(curves, own, strict=True)]
        )

    shared, *own = np.split(_least(residuals, np.concatenate(starts)), cuts)
    values = {name: float(v) for name, v in zip(form.shared, np.exp(shared[:n]), strict=True)}
    fits = [_fit_of(curve, form, values, o) for curve, o in zip(curves, own, strict=True)]
    return values, fits


def leave_one_out(form: Form, curves: Sequence[MeasuredCurve]) -> list[CurveFit]:
    """Each curve under the shared numbers that the others alone fix.

    Returns:
        Fit each curve's own numbers only.
    """
    found = []
    for left_out in curves:
        others = [curve for curve in curves if curve is not left_out]
        values, _ = fit_form(form, others)

        def residuals(
            x: Floats, left_out: MeasuredCurve = left_out, values: dict[str, float] = values
        ) -> Floats:
            return _off(left_out, form, values, x)

        own = _least(residuals, _own_prior(left_out, form))
        found.append(_fit_of(left_out, form, values, own))
    return found


def predicted(curve: MeasuredCurve, blocks: Blocks, working_set_mib: float) -> Floats:
    """Miss ratios at a curve's cache sizes.

    Returns:
        (C,) miss ratios, 0..1.
    """
    lru = lru_curve(blocks)
    return 1.0 - np.interp(curve.cache_mib / working_set_mib, lru.size, lru.overall(blocks))


def _has_index(curve: MeasuredCurve, form: Form) -> bool:
    return curve.counts_index and "index_share" in form.shared


def _shared_prior(form: Form) -> Floats:
    return np.array([math.log(PRIORS[name][0]) for name in form.shared])


def _own_prior(curve: MeasuredCurve, form: Form) -> Floats:
    """Start of the search: the cache that halves the curve's fall, and its floor."""
    floor, top = float(curve.miss[-1]), float(curve.miss[0])
    half = float(np.interp(-0.5 * (top + floor), -curve.miss, np.log(curve.cache_mib)))
    start = [half + math.log(2.0), math.log(floor / (1.0 - floor))]
    return np.array([*start, math.log(INDEX_LOOKUPS)] if _has_index(curve, form) else start)


def _prior_residuals(form: Form, shared: Floats) -> Floats:
    sd = np.array([PRIORS[name][1] for name in form.shared])
    return np.asarray((shared - _shared_prior(form)) / sd)


def _blocks(
    curve: MeasuredCurve, form: Form, values: dict[str, float], own: Floats
) -> tuple[Blocks, float]:
    """The workload under a form's shared numbers and its own, and its working set in MiB."""
    blocks = curve.blocks(
        upper_lookups=values.get("upper_lookups", 0.0),
        level_ratio=values.get("level_ratio", 10.0),
        cold=1.0 / (1.0 + math.exp(-own[1])),
    )
    if not form.hashed:
        blocks = replace(blocks, keys_per_block=1.0)
    if _has_index(curve, form):
        lookups, share = math.exp(own[2]), values["index_share"]
        blocks = replace(blocks, index_lookups=lookups, index_share=share)
    return blocks, math.exp(own[0])


def _off(curve: MeasuredCurve, form: Form, values: dict[str, float], own: Floats) -> Floats:
    said = predicted(curve, *_blocks(curve, form, values, own))
    return np.asarray((said - curve.miss) / RESIDUAL_SD)


def _fit_of(curve: MeasuredCurve, form: Form, values: dict[str, float], own: Floats) -> CurveFit:
    blocks, size = _blocks(curve, form, values, own)
    off = np.abs(predicted(curve, blocks, size) - curve.miss)
    return CurveFit(
        curve.name, size, blocks.cold, blocks.index_lookups, float(off.mean()), float(off.max())
    )


def _least(residuals: Callable[[Floats], Floats], start: Floats) -> Floats:
    try:
        from scipy.optimize import least_squares
    except ModuleNotFoundError:
        raise MissingExtraError("plan", "fitting hit curves") from None
    return np.asarray(least_squares(residuals, start, diff_step=1e-4, max_nfev=200).x)
