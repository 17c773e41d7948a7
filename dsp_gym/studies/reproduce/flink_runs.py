"""A real Flink's runs (flink_runs/): calibrated on a third of them, the rest predicted."""

from __future__ import annotations

from pathlib import Path

from dsp_gym.errors import MissingExtraError
from dsp_gym.studies.reproduce.registry import Check, skipped

__all__ = ["flink_runs"]

SOURCE = "flink_runs/runs.csv, samples.csv.gz"
RATE_MEDIAN, RATE_P90, EXTRAPOLATED = 0.10, 0.25, 0.15
SHARE_MEAN, READ_WITHIN_2, TAU = 0.07, 0.90, 0.85


def flink_runs(data: Path | None) -> list[Check]:
    """The checks; without the data folder or SciPy they are skipped.

    Returns:
        One check per figure; a single skipped one where data or SciPy are missing.
    """
    claim = "sustained rate, busyness, hit rate and read latency of runs held out of the fit"
    if data is None or not (data / "flink_runs" / "runs.csv").is_file():
        why = "no data folder; name one with DSP_GYM_DATA"
        return [skipped("flink-runs/held-out", SOURCE, claim, "50 runs", why)]
    from dsp_gym.studies.validation.flink_runs import flink_runs as figures_of

    try:
        found = figures_of(data)
    except MissingExtraError as error:
        return [skipped("flink-runs/held-out", SOURCE, claim, "50 runs", str(error))]
    held_out, ranks = found.held_out, found.agreement
    fit = f"{found.fitted_runs} of {found.all_runs} runs fitted"
    rates = f"{held_out.rate_count} parts at capacity; {fit}"
    checks = [
        _at_most(
            "rate-median",
            "median error of the sustained rate",
            held_out.rate_median,
            RATE_MEDIAN,
            rates,
        ),
        _at_most("rate-p90", "90th percentile of the same", held_out.rate_p90, RATE_P90, rates),
        _at_most(
            "busy",
            "mean error of the operators' busy share",
            held_out.busy_mean,
            SHARE_MEAN,
            f"{held_out.busy_count} values; {fit}",
        ),
        _at_most(
            "hit-rate",
            "mean error of the block cache's hit ratio",
            held_out.hit_mean,
            SHARE_MEAN,
            f"{held_out.hit_count} values; {fit}",
        ),
        _at_least(
            "read-latency",
            "share of median read latencies within a factor of 2",
            held_out.read_within_2,
            READ_WITHIN_2,
            f"{held_out.read_count} values; {fit}",
        ),
        _at_most(
            "extrapolated",
            "median error of the rate with 4 and 8 tasks, fitted to 1 and 2",
            found.extrapolated.rate_median,
            EXTRAPOLATED,
            f"{found.extrapolated.rate_count} parts at capacity",
        ),
    ]
    if ranks is not None:
        pairs = (
            f"{ranks.pairs} pairs further apart than twice the repeat spread of "
            f"{found.repeat_cv:.1%}, {ranks.trades} of them trade tasks against memory"
        )
        checks += [
            _at_least("order", "Kendall's tau over pairs of configurations", ranks.tau, TAU, pairs),
            _at_least(
                "order-linear",
                "the same, against the linear model's",
                ranks.tau,
                ranks.linear_tau,
                pairs,
            ),
        ]
    return checks


def _at_most(name: str, claim: str, ours: float | None, bar: float, note: str) -> Check:
    passed = ours is not None and ours <= bar
    return _check(name, claim, ours, f"at most {bar:g}", passed, note)


def _at_least(name: str, claim: str, ours: float | None, bar: float, note: str) -> Check:
    passed = ours is not None and ours >= bar
    return _check(name, claim, ours, f"at least {bar:.3g}", passed, note)


def _check(
    name: str, claim: str, ours: float | None, tolerance: str, passed: bool, note: str
) -> Check:
    shown = None if ours is None else round(ours, 3)
    return Check(
        f"flink-runs/{name}",
        SOURCE,
        claim,
        "measured",
        shown,
        tolerance,
        passed,
        used_in_fit=False,
        note=note,
    )
