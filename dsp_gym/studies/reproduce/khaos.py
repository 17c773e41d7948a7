"""Khaos: time from a failure until a job has caught up, by load and checkpoint interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dsp_gym.calibration.csv_rows import read_rows
from dsp_gym.calibration.recoveries import (
    Recoveries,
    fit_recoveries,
    left_out,
    read_recoveries,
)
from dsp_gym.studies.reproduce.registry import Check

FILE = "khaos_iot_recoveries.csv"
SOURCE = "Khaos, data/iot/failures.txt"
BAR = 0.14
"""Median error of Khaos' own predictor, which knows the job's latency, on its adaptive interval."""


def khaos(data: Path | None, recoveries: Path | None = None) -> list[Check]:
    """Predict each checkpoint interval's recoveries from those with the other intervals.

    Args:
        data: folder of measured data; read where no file is given.
        recoveries: a table with the columns of `FILE`.

    Returns:
        Checks of each job of the table, and its own predictor's error where the table has it.
    """
    file = recoveries
    if file is None:
        assert data is not None  # else the study is skipped
        file = data / FILE
    checks = [check for job in read_recoveries(file) for check in _of_job(job)]
    return checks + _of_khaos(file)


def _of_job(found: Recoveries) -> list[Check]:
    predicted, _ = left_out(found)
    errors = np.abs(predicted / found.taken_s - 1.0)
    fit = fit_recoveries(found)
    note = (
        f"{len(found)} failures; of all intervals together: outage {fit.outage_s:.0f} s, "
        f"capacity {fit.capacity_per_s:,.0f} records/s"
    )
    claim = f"error of the recovery times of {found.job}, their checkpoint interval left out"
    median, most = float(np.median(errors)), float(np.quantile(errors, 0.9))
    return [
        Check(
            f"khaos/{found.job}-median", SOURCE, f"median {claim}", "measured", round(median, 4),
            f"at most {BAR:.0%}".replace("%", " %"), median <= BAR, note=note,
        ),
        Check(
            f"khaos/{found.job}-p90", SOURCE, f"p90 {claim}", "measured", round(most, 4), "–", None
        ),
    ]  # fmt: skip


def _of_khaos(file: Path) -> list[Check]:
    """What Khaos' own predictor said, of the rows that have it."""
    said = [
        (float(row["predicted_by_khaos_s"]), float(row["recovery_s"]))
        for row in read_rows(file)
        if row.get("predicted_by_khaos_s", "").strip()
    ]
    if not said:
        return []
    theirs, taken_s = np.array(said).T
    error = float(np.median(np.abs(theirs / taken_s - 1.0)))
    why = "the interval of these rows changed and is not in the table, so we predict none of them"
    claim = f"median error of Khaos' own predictor on {len(said)} failures with its interval"
    return [Check("khaos/own-predictor", SOURCE, claim, round(error, 4), None, "–", None, note=why)]
