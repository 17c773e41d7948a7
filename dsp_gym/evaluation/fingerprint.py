"""What a benchmark measures, as one short string: two results compare where it is the same."""

from __future__ import annotations

import hashlib
import json

from dsp_gym.evaluation.batch_of_runs import benchmark_job
from dsp_gym.evaluation.config import BenchmarkConfig

WHO_TAKES_PART = {"description", "policies", "reference", "clairvoyant"}
HOW_IT_IS_SHOWN = {"bootstrap", "confidence", "split", "seeds"}
"""One split or fewer seeds of it are a part of the benchmark, not another one."""

ABOUT_A_JOB = {"description", "used_in_fit", "fit_script", "fitted", "flink"}


def fingerprint(config: BenchmarkConfig) -> str:
    """Hash jobs, loads, splits, seeds, SLO, prices and everything else that a run depends on.

    Policies are left out, since a benchmark stays the same when more of them take part.

    Returns:
        16 hexadecimal digits.
    """
    measured = config.model_dump(
        mode="json",
        by_alias=True,
        exclude={
            **dict.fromkeys(WHO_TAKES_PART | HOW_IT_IS_SHOWN, True),
            "simulation": {"threads", "trace", "quiet_strides"},
        },
    )
    simulation = measured["simulation"]  # fingerprints from before do not have what is off here
    if not config.simulation.measurement.counts_times:
        del simulation["measurement"]["counts_times"]
    for key in ("warms_each_second", "checkpoint_interval_s"):
        if not simulation[key]:
            del simulation[key]
    for kind in ("jobs", "train_jobs"):
        measured[kind] = [
            benchmark_job(name, config).model_dump(mode="json", by_alias=True, exclude=ABOUT_A_JOB)
            for name in measured[kind]
        ]
    text = json.dumps(measured, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
