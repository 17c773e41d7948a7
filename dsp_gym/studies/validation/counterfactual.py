r"""The counterfactual evaluation of a journal, compared with two real runs of the same load.

    python -m dsp_gym.studies.validation.counterfactual [--job JOB ...] [--minutes 15] \
        [--out FILE.json]
    python -m dsp_gym.studies.validation.counterfactual --rescore [--job JOB ...] \
        [--out FILE.json]

Justin scales the real job under a load that doubles and halves, with DS2 watching; then DS2 scales
it under the same load. Decisions keep step with the load, so that both decide at the same seconds
of it: a decision 20 s later would be 2 points of lateness. The evaluation of the first journal uses
the job as calibrated on earlier recordings. It gives the model's error on the observed run and the
predicted cost of DS2; the second journal gives the real cost of DS2, and the model's error on that
run. `--rescore` reads the newest journals again.

Twins are held against the same runs: of each policy the twin that `dsp-gym twins` drives while the
other one scales the job, against the run in which the policy does. Its cost has to be within 10 %
and its late share within 2 points. These figures are written beside the others, as twin.json.
"""

from __future__ import annotations

import json
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
from dsp_gym.backends.flink.submission import Submission, load_arguments
from dsp_gym.calibration.reread import calibrated
from dsp_gym.config.files import write_atomic
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import RollBackConfig, SeatConfig
from dsp_gym.control.start import started
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.evaluation.tuning.space import with_params
from dsp_gym.job.catalog import load_job
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import resolve
from dsp_gym.studies.validation.closed_loop import start
from dsp_gym.whatif.evaluation import CounterfactualConfig, evaluate_journal
from dsp_gym.whatif.journal import ObservedRun, read_course
from dsp_gym.whatif.model_error import ModelError, Trust
from dsp_gym.whatif.replay import Twins

__all__ = ["BARS", "LOADS", "rising_and_falling"]

INTERVAL_S = 30
WINDOW = WindowConfig(window_s=25, stabilization_s=10)
LOADS = {"flink-q1": 2000.0, "flink-q11": 1500.0, "flink-wordcount": 1200.0}
"""Low rate of each job, records/s; the high one is twice that."""

ANY = Trust(lag=10.0, slo_share=1.0, cost=10.0)
"""Under this trust every figure is given; figures of an untrusted model count as not claimed."""

BARS = {"lag": 0.25, "slo_share": 0.02, "cost_of_ds2": 0.15, "twin_cost": 0.10, "twin_late": 0.02}
"""`twin_...`: of a policy's twin, against the policy scaling the job."""

EVERY_TIME = {"interval_s": INTERVAL_S / 2}
"""Policies evaluate whenever they are asked, not every second time."""

LEAD_S = 75
"""From a submission to the first decision, s: the job has run for a window under the low rate."""


def _local(name: str, change: Mapping[str, object]) -> PolicyConfig:
    """A shipped policy for jobs on one machine with some parameters changed."""
    _, shipped, _ = resolve(name)
    return shipped.model_copy(update={"params": with_params(shipped.params, change)})


SEATS = (
    SeatConfig(name="justin", policy=_local("justin-local", {"ds2": EVERY_TIME})),
    SeatConfig(name="ds2", policy=_local("ds2-local", EVERY_TIME)),
    SeatConfig(policy="incumbent"),
)


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
        A configuration of `dsp-gym run` without guardrails.
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
    """Lets one of the policies scale the real job, from one task per vertex."""
    spec, name, seconds = load_job(job), f"{job}-{acting}", round(60 * minutes)
    config = configured(job, acting, place.config)
    rates = rising_and_falling(seconds, LOADS[job])
    submitted_s = math.ceil(time.time())
    epoch_s = submitted_s + LEAD_S
    load = load_arguments([LOADS[job]] * LEAD_S + rates, folder.parent, 1000 * submitted_s)
    Submission.of_spec(spec, load, name).submit(place.rest, start(spec))
    try:
        with started(config, mode="active", journal=folder) as run:
            if time.time() > epoch_s:
                raise FlinkError(f"{name} took more than {LEAD_S} s to come up")
            _wait_until(epoch_s)
            run.backend.advance(0)  # what came before the first decision is nobody's
            for until_s in range(INTERVAL_S, seconds + 1, INTERVAL_S):
                decided = run.decide()
                _wait_until(epoch_s + until_s)
                run.finish(decided)
    finally:
        place.rest.cancel(place.rest.find_job(name).id)


def _wait_until(when_s: float) -> None:
    time.sleep(max(0.0, when_s - time.time()))


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


def compared(journal: Path, other: Path, config: RunConfig, seeds: int) -> dict[str, object]:
    """What the scorecard of one journal says, beside what the other journal shows.

    Returns:
        JSON values by name: predicted and recorded cost per hour, the model's errors, the verdicts;
        `holds` has a flag per bar.
    """
    card = evaluate_journal(journal, config, how=CounterfactualConfig(seeds=seeds))
    course, beside = read_course(journal), read_course(other)
    did = _cost_per_h(beside)
    error = card.error
    claimed = not error.beyond(Trust())
    told = (
        card
        if claimed
        else evaluate_journal(journal, config, how=CounterfactualConfig(seeds=seeds, trust=ANY))
    )
    claims = {one.policy: one for one in told.claims}
    said = claims["ds2"].figures["cost_per_h"].value
    # The other run is a recording too: it says how wrong the model is about DS2 in charge.
    again = evaluate_journal(other, config, how=CounterfactualConfig(seeds=seeds)).error
    return {
        "recorded": _recorded(course),
        "days": card.days,
        "decisions": card.decisions,
        "rescales": [float(np.nansum(one.outcome["rescales"])) for one in (course, beside)],
        "model": _pairs(error),
        "lag_error": _relative(error.lag_s),
        "slo_error": error.slo,
        "slo_range": error.slo_range,
        "cost_error": error.cost,
        "claimed": claimed,
        "ds2_cost_per_h": {"predicted": said, "recorded": did},
        "ds2_cost_error": abs(said / did - 1.0),
        "incumbent_cost_per_h": _cost_per_h(course),
        "model_of_ds2_run": _pairs(again),
        "verdicts": {name: verdict.word for name, verdict in card.verdicts.items()},
        "holds": {
            "lag": _relative(error.lag_s) <= BARS["lag"],
            "slo": error.slo <= BARS["slo_share"],
            "cost of ds2": claimed and abs(said / did - 1.0) <= BARS["cost_of_ds2"],
            "lag of ds2's run": _relative(again.lag_s) <= BARS["lag"],
            "slo of ds2's run": again.slo <= BARS["slo_share"],
        },
    }


def twins_compared(root: Path, config: RunConfig, seeds: int) -> dict[str, object]:
    """The twins of a pair of journals, against what both policies did.

    Args:
        root: holds the journals, each named after the policy that scaled the job.
        config: of the runs, with the calibrated job.
        seeds: twins per policy.

    Returns:
        JSON values by policy: its twin, driven while the other one scaled the job, and its own run.
    """
    found = {}
    courses = _of_one_time({acting: read_course(root / acting) for acting in ("justin", "ds2")})
    for policy, acting in (("ds2", "justin"), ("justin", "ds2")):
        twin, trusted = _twin_of(policy, courses[acting], root / acting, config, seeds)
        did = _figures(courses[policy])
        cost_error = abs(twin["cost_per_h"] / did["cost_per_h"] - 1.0)
        late_error = abs(twin["slo_share"] - did["slo_share"])
        found[policy] = {
            "beside": acting,
            "twin": twin,
            "did": did,
            "cost_error": cost_error,
            "late_error": late_error,
            "trusted": trusted,
            "holds": {
                "cost": cost_error <= BARS["twin_cost"],
                "late share": late_error <= BARS["twin_late"],
            },
        }
    return {"recorded": _recorded(courses["justin"]), "policies": found}


def _of_one_time(courses: Mapping[str, ObservedRun]) -> dict[str, ObservedRun]:
    """Both runs without the slots that one of them lacks at its begin.

    One journal may hold the outcome of its first slot and the other not. Under any policy a job is
    late in that slot, so counting it on one side is an error of 3 points.
    """
    first = max(course.segments()[0].start for course in courses.values())
    cut = {}
    for name, course in courses.items():
        arrived = course.outcome["arrived"].copy()
        arrived[:first] = np.nan
        cut[name] = replace(course, outcome={**course.outcome, "arrived": arrived})
    return cut


def _twin_of(
    policy: str, course: ObservedRun, journal: Path, config: RunConfig, seeds: int
) -> tuple[dict[str, float], bool]:
    """A policy's twin, driven while another policy scaled the job; whether the model is trusted."""
    twins = Twins(journal, seeds, ANY, config)
    twins.follow(course, final=True)
    error = twins.error()
    if policy in twins.failures or error is None:
        why = twins.failures.get(policy, "the journal holds no stretch to follow")
        raise ConfigError(f"{policy} has no twin: {why}", file=journal)
    figures = twins.figures()[policy]
    names = ("cost_per_h", "slo_share", "rescales_per_day")
    return {name: float(np.mean(figures[name])) for name in names}, not error.beyond(Trust())


def _figures(course: ObservedRun) -> dict[str, float]:
    """The same figures of a real run."""
    rows = np.concatenate([np.arange(part.start, part.stop) for part in course.segments()])
    seconds = float(course.outcome["seconds"][rows].sum())
    return {
        "cost_per_h": _cost_per_h(course),
        "slo_share": _late_share(course),
        "rescales_per_day": 86_400 * float(np.nansum(course.outcome["rescales"][rows])) / seconds,
    }


def _recorded(course: ObservedRun) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(course.t_s[0]))


def _late_share(course: ObservedRun) -> float:
    """Late share of the stretches that a scorecard looks at."""
    rows = np.concatenate([np.arange(part.start, part.stop) for part in course.segments()])
    return float(np.nansum(course.outcome["slo_s"][rows]) / course.outcome["seconds"][rows].sum())


def _pairs(error: ModelError) -> dict[str, tuple[float, float]]:
    """Predicted and observed."""
    return {"lag_s": error.lag_s, "slo_share": error.slo_share, "cost_per_h": error.cost_per_h}


def _relative(pair: tuple[float, float]) -> float:
    """Error of a prediction over what was observed; of a small lag, too."""
    predicted, observed = pair
    return abs(predicted - observed) / max(observed, 1e-9)


def _cost_per_h(course: ObservedRun) -> float:
    """What ran, in money per hour of the stretches that a scorecard looks at."""
    rows = np.concatenate([np.arange(part.start, part.stop) for part in course.segments()])
    seconds = course.outcome["seconds"][rows].sum()
    return float(3600 * np.nansum(course.outcome["cost"][rows]) / seconds)


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
    """Run both policies on real jobs under one load, and hold the scorecard against them."""
    place = None if rescore else reach(PlaceConfig(home=home))
    found: dict[str, object] = {}
    twins: dict[str, object] = {}
    for one in job or LOADS:
        if place is None:
            root = newest(journal / one)
        else:
            root = journal / one / time.strftime("%Y%m%d-%H%M%S")
            for acting in ("justin", "ds2"):
                drive(place, one, acting, minutes, root / acting)
        config = modelled(root, one, reports)
        found[one] = compared(root / "justin", root / "ds2", config, seeds)
        twins[one] = twins_compared(root, config, seeds)
        typer.echo(json.dumps({one: found[one], "twins": twins[one]}))
        if out is not None:
            write_atomic(out, json.dumps(found, indent=1) + "\n")
            write_atomic(out.with_name("twin.json"), json.dumps(twins, indent=1) + "\n")


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
    typer.run(main)
