r"""The backtest of a journal, compared with two real runs of the same load.

    python -m dsp_gym.studies.validation.counterfactual [--job JOB ...] [--minutes 15] \
        [--out FILE.json]
    python -m dsp_gym.studies.validation.counterfactual --rescore [--job JOB ...] \
        [--out FILE.json]

Justin scales the real job under a load that doubles and halves, with DS2 watching; then DS2 scales
it under the same load. Decisions keep step with the load, so that both decide at the same seconds
of it: a decision 20 s later would be 2 points of lateness. The backtest of each journal uses the
job as calibrated on earlier recordings. It gives the model's error on the run, and what the policy
that watched would have cost and how late it would have been; the other run shows what it did cost
and how late it was. `--rescore` reads the newest journals again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
import yaml

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.connection import Place, reach
from dsp_gym.backends.flink.submission import load_arguments
from dsp_gym.calibration.reread import calibrated
from dsp_gym.config.files import write_atomic
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import NamedPolicyConfig, RollBackConfig
from dsp_gym.control.start import started
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.cost import HOURS_A_MONTH
from dsp_gym.policies.config import PolicyConfig, with_params
from dsp_gym.policies.registry import resolve
from dsp_gym.studies.runner import keep_figures, run, write_figures
from dsp_gym.studies.running import WINDOW, on_the_beat, one_task_each, submitted
from dsp_gym.whatif.backtest import backtest
from dsp_gym.whatif.history import JobHistory
from dsp_gym.whatif.journal import read_run
from dsp_gym.whatif.journal_history import history_of_run
from dsp_gym.whatif.result import JobResult

INTERVAL_S = 30
LOADS = {"flink-q1": 2000.0, "flink-q11": 1500.0, "flink-wordcount": 1200.0}
"""Low rate of each job, records/s; the high one is twice that."""

BARS = {"lag": 0.25, "late": 0.02, "cost": 0.10}
"""Of the model on a run, and of the cost and late share of a policy against its own run."""

EVERY_TIME = {"interval_s": INTERVAL_S / 2}
"""Policies evaluate whenever they are asked, not every second time."""

LEAD_S = 75
"""From a submission to the first decision, s: the job has run for a window under the low rate."""


def _local(name: str, change: Mapping[str, object]) -> PolicyConfig:
    """A shipped policy for jobs on one machine with some parameters changed."""
    _, shipped, _ = resolve(name)
    return shipped.model_copy(update={"params": with_params(shipped.params, change)})


SEATS = (
    NamedPolicyConfig(name="justin", policy=_local("justin-local", {"ds2": EVERY_TIME})),
    NamedPolicyConfig(name="ds2", policy=_local("ds2-local", EVERY_TIME)),
    NamedPolicyConfig(policy="incumbent"),
)


SCALED = ("justin", "ds2")
"""Who scales the job, one after the other."""


def rising_and_falling(seconds: int, low_per_s: float) -> list[float]:
    """A third of the time low, then twice as much, then low again; records/s by second.

    Returns:
        One rate per second, `seconds` long.
    """
    third = seconds // 3
    return [low_per_s] * third + [2 * low_per_s] * third + [low_per_s] * (seconds - 2 * third)


def configured(job: str, acting: str = "justin", where: PlaceConfig | None = None) -> RunConfig:
    """Three policies on one job, one of them acting.

    Returns:
        A configuration of `dsp-gym shadow` without guardrails.
    """
    return RunConfig(
        job=job,
        job_name=f"{job}-{acting}",
        where=where or PlaceConfig(),
        policies=SEATS,
        acting=acting,
        guardrails=None,
        interval_s=INTERVAL_S,
        window=WINDOW,
        roll_back=RollBackConfig(slo_share=1.0),
    )


def drive(place: Place, job: str, acting: str, minutes: float, folder: Path) -> None:
    """Let one of the policies scale the real job, from one task per vertex."""
    spec, name, seconds = load_job(job), f"{job}-{acting}", round(60 * minutes)
    rates = rising_and_falling(seconds, LOADS[job])
    submitted_s = math.ceil(time.time())
    epoch_s = submitted_s + LEAD_S
    load = load_arguments([LOADS[job]] * LEAD_S + rates, folder.parent, 1000 * submitted_s)
    config = configured(job, acting, place.config)
    with (
        submitted(place.rest, spec, name, load, one_task_each(spec)),
        started(config, mode="active", journal=folder) as run,
    ):
        if time.time() > epoch_s:
            raise FlinkError(f"{name} took more than {LEAD_S} s to come up")
        list(on_the_beat(run, epoch_s, seconds))


def modelled(root: Path, job: str, reports: Path) -> RunConfig:
    """The configuration of a pair of journals, with the calibrated model of the job.

    Returns:
        The configuration; the model stands beside the journals.
    """
    document = calibrated(job, reports).model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    file = root / f"{job}.yaml"
    write_atomic(file, yaml.safe_dump(document, sort_keys=False))
    return configured(str(file))


def compared(root: Path, config: RunConfig, seeds: int) -> dict[str, object]:
    """What the backtest of each journal of a pair says, beside what the other one shows.

    Args:
        root: holds the journals, each named after the policy that scaled the job.
        config: of the runs, with the calibrated job.
        seeds: predictions of each policy.

    Returns:
        JSON values: by the acting policy the model's error on its run, and by policy its replay,
        made while the other one scaled the job, and its own run; `holds` has a flag per bar.
    """
    # The calibrated job stands in place of the one that the journals were written with.
    calibrated_job = config.model_dump(mode="json", by_alias=True)
    journals = {
        acting: replace(read_run(root / acting), configuration=calibrated_job) for acting in SCALED
    }
    runs = _of_one_time({name: history_of_run(run, root / name) for name, run in journals.items()})
    results = {
        acting: backtest([run], "a journal", seeds=seeds).jobs[0] for acting, run in runs.items()
    }
    return {
        "recorded": time.strftime("%Y-%m-%d %H:%M", time.gmtime(runs["justin"].t_s[0])),
        "decisions": results["justin"].intervals,
        "model": {acting: _model(result) for acting, result in results.items()},
        "policies": {
            policy: _predicted(policy, acting, results)
            for policy, acting in zip(reversed(SCALED), SCALED, strict=True)
        },
    }


def _predicted(policy: str, acting: str, results: Mapping[str, JobResult]) -> dict[str, object]:
    """A policy on the journal of another one's run, beside its own run."""
    claim = next(one for one in results[acting].claims if one.policy == policy)
    base, did = results[acting].observed, results[policy].observed
    saved = claim.saving_per_month.value
    said_cost = (base.model_cost_per_month - saved) / HOURS_A_MONTH
    cost, late = did.cost_per_month / HOURS_A_MONTH, did.late or 0.0
    off = {"cost": abs(said_cost / cost - 1.0), "late": abs(claim.late.value - late)}
    return {
        "beside": acting,
        "predicted": {
            "cost_per_h": said_cost,
            "late": claim.late.value,
            "rescales_per_day": claim.rescales_per_day,
        },
        "did": {"cost_per_h": cost, "late": late, "rescales_per_day": did.rescales_per_day},
        "off": off,
        "holds": {name: off[name] <= BARS[name] for name in off},
    }


def _model(result: JobResult) -> dict[str, object]:
    """The model on a run: predicted and observed, and whether each is within its bar."""
    seen = result.observed
    return {
        "lag_s": [seen.model_lag_s, seen.lag_s],
        "late": [seen.model_late, seen.late],
        "cost_per_h": [
            seen.model_cost_per_month / HOURS_A_MONTH,
            seen.cost_per_month / HOURS_A_MONTH,
        ],
        "trusted": not result.distrust,
        "holds": {
            "lag": seen.lag_error <= BARS["lag"],
            "late": seen.late_error <= BARS["late"],
            "cost": seen.cost_error <= BARS["cost"],
        },
    }


def _of_one_time(runs: Mapping[str, JobHistory]) -> dict[str, JobHistory]:
    """Both runs without the slots that one of them lacks at its begin.

    One journal may hold the outcome of its first slot and the other not. Under any policy a job is
    late in that slot, so counting it on one side is an error of 3 points.
    """
    first = max(run.usable()[0].start for run in runs.values())
    return {
        name: replace(run, arrived=np.where(np.arange(len(run)) < first, np.nan, run.arrived))
        for name, run in runs.items()
    }


def main(
    job: Annotated[list[str] | None, typer.Option(help="Jobs; default: all.")] = None,
    minutes: Annotated[float, typer.Option(min=6, help="Length of each run.")] = 15.0,
    seeds: Annotated[int, typer.Option(min=2, help="Predictions per policy.")] = 16,
    out: Annotated[Path | None, typer.Option(help="Where the figures are written.")] = None,
    journal: Annotated[Path, typer.Option(help="Folder of journals.")] = Path(
        "runs/counterfactual"
    ),
    rescore: Annotated[
        bool, typer.Option(help="Score the newest journals in the folder, without a cluster.")
    ] = False,
    reports: Annotated[
        Path, typer.Option(help="Folder of the reports calibrate-JOB.json of the calibrations.")
    ] = Path("docs/figures/validation"),
    home: Annotated[Path | None, typer.Option(help="Folder of the local cluster.")] = None,
) -> None:
    """Run both policies on real jobs under one load; hold the backtests against each other."""
    place = None if rescore else reach(PlaceConfig(home=home))
    found: dict[str, object] = {}
    for one in job or LOADS:
        root = journal / one / time.strftime("%Y%m%d-%H%M%S")
        if place is None:
            root = newest(journal / one)
        else:
            for acting in SCALED:
                drive(place, one, acting, minutes, root / acting)
        found[one] = compared(root, modelled(root, one, reports), seeds)
        write_figures({one: found[one]})
        keep_figures(found, out)


def newest(folder: Path) -> Path:
    """The newest pair of journals of a job.

    Returns:
        The folder that holds both journals, `ds2` and `justin`.

    Raises:
        ConfigError: The folder holds no pair of journals.
    """
    pairs = sorted(one.parent for one in folder.glob("*/ds2") if (one.parent / "justin").is_dir())
    if not pairs:
        raise ConfigError(
            "holds no journals of two policies", file=folder, remedy="Leave --rescore out."
        )
    return pairs[-1]


if __name__ == "__main__":
    run(main)
