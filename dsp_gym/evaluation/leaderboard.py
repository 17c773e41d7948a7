"""The leaderboard: every policy of a scorecard over all its jobs, one row each.

Policies that miss the SLO no more often than the benchmark allows come first, the cheapest on top;
the others follow, the least late on top. The bound and the best plan know the load: they stand
apart, without a rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.files import configs_root, load_model, parse, read_yaml
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.config import BOUND, BenchmarkConfig, Entrant
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.evaluation.headline import KNOWING
from dsp_gym.evaluation.report import number, percent
from dsp_gym.evaluation.run import PLAN
from dsp_gym.evaluation.scorecard import IntervalEstimate, Scorecard
from dsp_gym.evaluation.statistics import mean, ratio_of_means, stratified_bootstrap
from dsp_gym.pages import Html, ScatterPoint, lead, money, page, scatter, section, shaded, table
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import installed

__all__ = ["Standing", "render_html", "render_markdown", "standings", "tuned_on", "with_everyone"]

DAY_S = 86_400
TUNED = "-tuned"
"""Ends the name of a tuned policy's file, and so its label."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy over all jobs, loads and seeds; per day of one job."""

    policy: str
    rank: int | None  # none: it knows the load
    keeps_slo: bool
    slo_share: float
    cost: IntervalEstimate
    slo_s: IntervalEstimate
    rescales: IntervalEstimate | None  # none: the bound is a cost alone
    saving: IntervalEstimate | None  # none: the possible saving was not computed
    by_job: dict[str, tuple[float, float]]  # cost per day, share of the time late


def standings(card: Scorecard) -> tuple[Standing, ...]:
    """Ranks the policies.

    Returns:
        One row per policy, best first; those that know the load on top, without a rank.
    """
    config = parse(BenchmarkConfig, card.config, "scorecard")
    found = [_standing(card, config, policy) for policy in card.policies]
    knowing = [one for one in found if one.policy in KNOWING]
    knowing.sort(key=lambda one: one.cost.value)
    ranked = sorted(
        (one for one in found if one.policy not in KNOWING),
        key=lambda one: (0, one.cost.value) if one.keeps_slo else (1, one.slo_share),
    )
    return (*knowing, *(_ranked(one, place) for place, one in enumerate(ranked, 1)))


def _ranked(one: Standing, rank: int) -> Standing:
    values = {name: getattr(one, name) for name in Standing.__slots__}
    return Standing(**{**values, "rank": rank})


def _standing(card: Scorecard, config: BenchmarkConfig, policy: str) -> Standing:
    per_day = DAY_S / config.episode_s
    cells = [cell for cell in card.cells if cell.policy == policy]
    places: dict[tuple[str, str], list[int]] = {}
    for i, cell in enumerate(cells):
        places.setdefault((cell.job, cell.load), []).append(i)
    order = np.array(list(places.values()))  # (jobs * loads, seeds)

    def table(values: Sequence[float]) -> Floats:
        return np.take(np.asarray(values, dtype=np.float64), order)

    def estimate(name: str) -> IntervalEstimate | None:
        if any(name not in cell.metrics for cell in cells):
            return None
        values = table([cell.metrics[name] * per_day for cell in cells])
        interval = stratified_bootstrap(
            values, mean, n=config.bootstrap, confidence=config.confidence
        )
        return IntervalEstimate(value=float(values.mean()), low=interval.low, high=interval.high)

    cost, slo_s = estimate("cost"), estimate("slo_s")
    assert cost is not None  # every row has both, the bound's too
    assert slo_s is not None
    late = float(np.mean([cell.metrics["slo_share"] for cell in cells]))
    saving = None
    if all(cell.bound is not None and cell.peak is not None for cell in cells):
        saved = table([float(cell.peak or 0.0) - cell.metrics["cost"] for cell in cells])
        most = table([float(cell.peak or 0.0) - float(cell.bound or 0.0) for cell in cells])
        if most.mean() > 0:
            share, interval = ratio_of_means(
                saved, most, n=config.bootstrap, confidence=config.confidence
            )
            saving = IntervalEstimate(value=share, low=interval.low, high=interval.high)
    by_job = {}
    for job in card.jobs:
        mine = [cell.metrics for cell in cells if cell.job == job]
        by_job[job] = (
            float(np.mean([m["cost"] for m in mine])) * per_day,
            float(np.mean([m["slo_share"] for m in mine])),
        )
    return Standing(
        policy=policy,
        rank=None,
        keeps_slo=late <= config.max_slo_share,
        slo_share=late,
        cost=cost,
        slo_s=slo_s,
        rescales=estimate("rescales"),
        saving=saving,
        by_job=by_job,
    )


def with_everyone(config: BenchmarkConfig, name: str, tuned: Path | None = None) -> BenchmarkConfig:
    """The benchmark with every installed policy, and every one that was tuned on it.

    Args:
        config: The benchmark.
        name: The benchmark's name.
        tuned: Folder of policies that `dsp-gym tune` wrote; those that are shipped if None.

    Returns:
        The benchmark with more entrants.
    """
    labels = [entrant.name for entrant in config.policies]
    more = [
        Entrant(policy=policy, name=policy)
        for policy in installed()
        if policy not in labels and policy not in KNOWING
    ]
    folders = [configs_root() / "policies" / "tuned" / name, *([tuned] if tuned else [])]
    mine = fingerprint(config)
    found: dict[str, Entrant] = {}
    for folder in folders:
        for file in sorted(folder.glob(f"*{TUNED}.yaml")):
            if tuned_on(file, mine):
                found[file.stem] = Entrant(policy=str(file), name=file.stem)
    return config.model_copy(update={"policies": (*config.policies, *more, *found.values())})


def tuned_on(file: Path, benchmark: str) -> bool:
    """Whether a file holds a policy tuned on the benchmark; refuses one tuned on another.

    Args:
        file: What `dsp-gym tune` wrote: a policy, or an experiment, which does not take part.
        benchmark: The benchmark's fingerprint.

    Returns:
        True: a policy tuned on this benchmark. False: no policy, so the file takes no part.
    """
    document = read_yaml(file)
    if not isinstance(document, dict) or "policy" not in document:
        return False
    record = load_model(PolicyConfig, "policies", file).provenance or {}
    if record.get("fingerprint") != benchmark:
        raise ConfigError(
            f"was not tuned on this benchmark, whose fingerprint is {benchmark}",
            file=file,
            key="provenance.fingerprint",
            value=record.get("fingerprint"),
            remedy="Tune it again: dsp-gym tune POLICY BENCHMARK, or remove the file.",
        )
    return True


def _head(card: Scorecard) -> tuple[str, ...]:
    return (
        "",
        "policy",
        f"{card.currency} per day",
        "SLO s per day",
        "late",
        "share of the possible saving",
        "rescales per day",
    )


def _rows(found: Sequence[Standing]) -> list[tuple[str, ...]]:
    return [
        (
            "–" if one.rank is None else str(one.rank) if one.keeps_slo else f"({one.rank})",
            one.policy,
            _shown(one.cost),
            _shown(one.slo_s),
            f"{percent(one.slo_share)} %",
            _shown(one.saving, percent=True),
            _shown(one.rescales),
        )
        for one in found
    ]


def _by_job(card: Scorecard, found: Sequence[Standing]) -> tuple[tuple[str, ...], list[list[str]]]:
    rows = [
        [one.policy, *(f"{number(cost)}, {percent(late)} %" for cost, late in one.by_job.values())]
        for one in found
    ]
    return ("policy", *card.jobs), rows


def _shown(estimate: IntervalEstimate | None, percent: bool = False) -> str:
    if estimate is None:
        return "–"
    factor, unit = (100, " %") if percent else (1, "")
    value, low, high = (number(factor * x) for x in (estimate.value, estimate.low, estimate.high))
    return f"{value}{unit}" if low == high else f"{value}{unit} [{low}, {high}]"


def _explained(card: Scorecard, name: str) -> list[str]:
    config = parse(BenchmarkConfig, card.config, "scorecard")
    loads = list(dict.fromkeys(cell.load for cell in card.cells))
    seeds = len({cell.seed for cell in card.cells})
    runs = len(card.jobs) * len(loads) * seeds
    days = config.episode_s / DAY_S
    return [
        f"Benchmark {name}, fingerprint {fingerprint(config)}: {len(card.jobs)} jobs "
        f"({', '.join(card.jobs)}) under {len(loads)} loads ({', '.join(loads)}) with {seeds} "
        f"seed{'s' if seeds > 1 else ''} each, {runs} runs of {number(days)} "
        f"day{'s' if days != 1 else ''} per policy, dsp-gym {card.versions['dsp-gym']}.",
        "Means per job and day; in brackets "
        f"{100 * config.confidence:g} % bootstrap intervals, over seeds within each job and load "
        "(of the saving: over loads too). Cost is the price of the requested resources. An SLO "
        "second is one in which p95 latency exceeded the bound, or the job was down. The share of "
        "the possible saving is 0 % for the cheapest fixed configuration that carries the peak and "
        "100 % at the bound; lateness saves money too, so read it beside the late share.",
        f"Ranked by cost are policies late at most {100 * config.max_slo_share:g} % of the time; "
        "ranks in parentheses are of those late more often, the least late first. "
        f"'{BOUND}' and '{PLAN}' know the load and take no part. Policies ending in '{TUNED}' have "
        "parameters that `dsp-gym tune` found on the training jobs and loads of this benchmark.",
    ]


def render_markdown(card: Scorecard, name: str) -> str:
    """Renders the page of the documentation.

    Returns:
        Markdown text.
    """
    found = standings(card)
    head, rows = _by_job(card, found)
    return "\n".join(
        [
            "# Leaderboard",
            "",
            f"<!-- Written by `dsp-gym leaderboard {name}`; do not edit. -->",
            "",
            "The published autoscalers, with default and with tuned parameters, ranked by cost "
            "among those that are rarely late; for readers who choose a baseline. Policies at "
            "equal lateness: [core-v2](core-v2.md).",
            "",
            _markdown(_head(card), _rows(found)),
            *(f"\n{text}" for text in _explained(card, name)),
            "\nYour own policy takes part as soon as it is installed: "
            "[Add a policy](guides/add-a-policy.md).",
            "\n## By job",
            f"\n{card.currency} per day, and the late share of the time.\n",
            _markdown(head, rows),
            "",
        ]
    )


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def render_html(card: Scorecard, name: str) -> str:
    """Renders the same page as HTML.

    Returns:
        HTML without outside references.
    """
    found = standings(card)
    head, rows = _by_job(card, found)
    return page(
        f"Leaderboard {name}",
        lead(_headline(card, found)),
        table(_head(card), _rows(found), emphasis=dict.fromkeys(_winners(found), "best")),
        _drawn(card, found),
        section(
            "By job",
            f"{card.currency} per day, and the late share of the time. A darker cell costs more on "
            "that job.",
            table(head, _heated(rows, found)),
        ),
        section("How to read this", *_explained(card, name)),
    )


def _winners(found: Sequence[Standing]) -> list[int]:
    return [place for place, one in enumerate(found) if one.rank == 1]


def _headline(card: Scorecard, found: Sequence[Standing]) -> str:
    """The first of the ranking, and the distance to the second."""
    first, *others = sorted((one for one in found if one.rank), key=lambda one: one.rank or 0)
    said = f"{first.policy} is first: {money(first.cost.value, card.currency)} a day"
    said += f", late {percent(first.slo_share)} %"
    if not others:
        return f"{said}."
    share = first.cost.value / others[0].cost.value - 1
    less = f"{percent(abs(share))} % {'less' if share < 0 else 'more'}"
    return f"{said}; {less} than {others[0].policy}, late {percent(others[0].slo_share)} %."


def _drawn(card: Scorecard, found: Sequence[Standing]) -> Html:
    """Every policy in the plane of lateness and cost."""
    config = parse(BenchmarkConfig, card.config, "scorecard")
    shown = [one for one in found if one.policy != BOUND]
    points = [
        ScatterPoint(
            one.policy,
            [100 * one.slo_share],
            [one.cost.value],
            [
                f"{one.policy}: {money(one.cost.value, card.currency)} a day, "
                f"late {percent(one.slo_share)} %"
            ],
        )
        for one in shown
    ]
    return scatter(
        f"Cost against lateness of {len(points)} policies.",
        points,
        x_label="late, share of the time",
        y_label=f"{card.currency} per day",
        bound=100 * config.max_slo_share,
        x_most=300 * config.max_slo_share,
    )


def _heated(rows: Sequence[Sequence[str]], found: Sequence[Standing]) -> list[list[str]]:
    """The cells by job, each on a ground as dark as its cost is far from the cheapest."""
    costs = np.array([[cost for cost, _ in one.by_job.values()] for one in found])
    knowing = np.array([one.rank is None for one in found])
    least = costs[~knowing].min(axis=0)
    far = np.clip(costs / least - 1, 0, 1)
    return [
        [row[0], *(shaded(text, heat) for text, heat in zip(row[1:], heats, strict=True))]
        for row, heats in zip(rows, far.tolist(), strict=True)
    ]
