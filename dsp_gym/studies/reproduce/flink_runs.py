"""A real Flink's runs (flink_runs/): calibrated on a third of them, the rest predicted."""

from __future__ import annotations

from pathlib import Path

from dsp_gym.studies.reproduce.registry import Check

SOURCE = "flink_runs/runs.csv, samples.csv.gz"
RATE_MEDIAN, RATE_P90, EXTRAPOLATED = 0.10, 0.25, 0.15
SHARE_MEAN, READ_WITHIN_2, TAU = 0.07, 0.90, 0.85


def flink_runs(data: Path) -> list[Check]:
    """Check predictions of runs that were held out of the fit.

    Returns:
        One check per figure.
    """
    from dsp_gym.studies.validation.flink_runs import flink_runs as figures_of

    found = figures_of(data)
    held_out, ranks = found.held_out, found.agreement
    fit = f"{found.fitted_runs} of {found.all_runs} runs fitted"
    rates = f"{held_out.rate_count} parts at capacity; {fit}"
    checks = [
        _check(
            "rate-median",
            "median error of the sustained rate",
            held_out.rate_median,
            RATE_MEDIAN,
            rates,
        ),
        _check("rate-p90", "90th percentile of the same", held_out.rate_p90, RATE_P90, rates),
        _check(
            "busy",
            "mean error of the operators' busy share",
            held_out.busy_mean,
            SHARE_MEAN,
            f"{held_out.busy_count} values; {fit}",
        ),
        _check(
            "hit-rate",
            "mean error of the block cache's hit ratio",
            held_out.hit_mean,
            SHARE_MEAN,
            f"{held_out.hit_count} values; {fit}",
        ),
        _check(
            "read-latency",
            "share of median read latencies within a factor of 2",
            held_out.read_within_2,
            READ_WITHIN_2,
            f"{held_out.read_count} values; {fit}",
            most=False,
        ),
        _check(
            "extrapolated",
            "median error of the rate with 4 and 8 tasks, fitted to 1 and 2",
            found.extrapolated.rate_median,
            EXTRAPOLATED,
            f"{found.extrapolated.rate_count} parts at capacity",
        ),
    ]
    if ranks is None:
        return checks
    pairs = (
        f"{ranks.pairs} pairs further apart than twice the repeat spread of "
        f"{found.repeat_cv:.1%}, {ranks.trades} of them trade tasks against memory"
    )
    against, tau = "the same, against the linear model's", ranks.tau
    return [
        *checks,
        _check("order", "Kendall's tau over pairs of configurations", tau, TAU, pairs, most=False),
        _check("order-linear", against, tau, ranks.linear_tau, pairs, most=False),
    ]


def _check(
    name: str, claim: str, ours: float | None, bar: float, note: str, *, most: bool = True
) -> Check:
    """A figure beside its bar: at most that where `most`, else at least."""
    passed = ours is not None and (ours <= bar if most else ours >= bar)
    return Check(
        f"flink-runs/{name}",
        SOURCE,
        claim,
        "measured",
        None if ours is None else round(ours, 3),
        f"at most {bar:g}" if most else f"at least {bar:.3g}",
        passed,
        note=note,
    )
