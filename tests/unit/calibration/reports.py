"""Reports of calibrations, put together without a fit."""

from __future__ import annotations

import math

from dsp_gym.calibration.config import CalibrationConfig
from dsp_gym.calibration.errors import Compared, errors_of
from dsp_gym.calibration.fit import Fit, Fitted
from dsp_gym.calibration.model import Prediction
from dsp_gym.calibration.mst_report import MstReport, MstRow
from dsp_gym.calibration.noise import Noise
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.calibration.report import CalibrationReport
from dsp_gym.calibration.rescale import RescaleTimes
from dsp_gym.job.catalog import load_job

VERTICES = ("source", "flatmap", "count")


def compared(runs: int = 12) -> list[Compared]:
    """Steady parts of runs, every third one held out; none has a cache."""
    found = []
    for number in range(runs):
        rate, busy = 800.0 * 1.3**number, min(1.0, 0.2 + 0.07 * number)
        off = 1 + 0.1 * math.sin(number)
        shares = dict.fromkeys(VERTICES, busy)
        seen = SteadyPart(
            run=f"p{number}-sat",
            start_s=60.0,
            end_s=120.0,
            parallelism=dict.fromkeys(VERTICES, number + 1),
            level=dict.fromkeys(VERTICES, 0),
            offered_per_s=math.inf,
            rate_per_s=rate,
            spread=0.02,
            drift=0.0,
            saturated=True,
            busy=shares,
            read_us={"count": 40.0 + number},
        )
        said = {vertex: min(1.0, share * off) for vertex, share in shares.items()}
        reads = {"count": (40.0 + number) * off}
        predicted = Prediction(rate * off, said, {}, reads, {})
        found.append(Compared(seen, predicted, in_fit=number % 3 > 0))
    return found


def calibrated() -> CalibrationReport:
    """The report of a calibration from recordings."""
    spec, parts = load_job("flink-wordcount"), compared()
    fitted = Fitted("count.cpu_us_per_record", "us", 10.0, 12.0, 11.0, 13.0, identified=True)
    fit_errors = errors_of(spec, [one for one in parts if one.in_fit])
    others = errors_of(spec, [one for one in parts if not one.in_fit])
    return CalibrationReport(
        config=CalibrationConfig(job="flink-wordcount", recordings=("recordings/a",)),
        spec=spec,
        fit=Fit(spec, {}, "power", (fitted,), ()),
        runs=tuple(one.seen.run for one in parts if one.in_fit),
        aborted=(),
        compared=tuple(parts),
        fitted_errors=fit_errors,
        held_out_errors=others,
        left_out_errors=others,
        left_out="every third run",
        problems=(),
        advice=(),
        rescale=RescaleTimes((3.0, 4.0, 5.0), 12, None, 0, None, 0),
        noise=Noise(0.02, 0.01, "repeats"),
        skew=(),
        agreement=None,
        job_yaml="job: flink-wordcount\n",
    )


def measured() -> MstReport:
    """The report of a fit to measured throughput."""
    rows = tuple(
        MstRow(4096.0, slots, slots == 1, 3, 1e4 * slots, 1.05e4 * slots, None, True)
        for slots in (1, 4, 16, 48)
    )
    return MstReport(
        job="q1",
        query="q1",
        runs=12,
        suspect_runs=0,
        form="power",
        left_out_error=0.04,
        forms={"power": 0.04, "linear": 0.2},
        parameters={"cpu": 10.0},
        memory_effect=None,
        enough_mib=2048.0,
        rows=rows,
        warnings=(),
        fitted=None,
    )
