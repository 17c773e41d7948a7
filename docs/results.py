"""Writes docs/results.md, the README's table and the cards' comparisons, from docs/figures/.

    python docs/results.py [--q11 RESULTS.json] [--worldcup RESULTS.json]
    python docs/results.py --core-v2 runs/frontiers/core-v2/results.json
    python docs/results.py --core-v3 runs/referees/core-v3/test/results.json

A result given is cut down to what is shown and kept first: scorecards and the referee's table in
docs/figures/, the frontier in the package, where entries are placed beside it. `make validate`
makes the scorecards, `make frontier` the frontier, `make referee` the README's table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from generator.frontier import (
    AGENTS,
    PICTURE,
    card_part,
    cut,
    first_cell,
    real_flink,
    with_part,
)
from generator.picture import draw
from generator.referee import cut as cut_referee
from generator.referee import readme_block

from dsp_gym.evaluation.frontier.published import published_file

DOCS = Path(__file__).parent
FIGURES = DOCS / "figures"
README = DOCS.parent / "README.md"
PUBLISHED = published_file("core-v2")
CARDS = {
    name: DOCS.parent / "agents" / "pretrained" / folder / "card.md"
    for name, folder in zip(AGENTS, ("planning", "ppo", "q11"), strict=True)
}
BEGIN, END = "<!-- scorecard -->", "<!-- end of scorecard -->"

COLUMNS = (
    ("cost", "money", "{:.3f}"),
    ("core_h", "core-hours", "{:.1f}"),
    ("gib_h", "GiB-hours", "{:.1f}"),
    ("slo_s", "SLO seconds", "{:.0f}"),
    ("latency_p95_s", "p95 latency, s", "{:.2f}"),
    ("rescales", "rescales", "{:.1f}"),
)


TOLD = {
    "scan_factor": "decision windows, multiple of a pyarrow scan of all columns",
    "skew_factor": "time per row if one job has nine tenths of them, over even jobs",
    "peak_mib": "largest memory of Spark, MiB",
    "cold_s": "whole build of a million rows in a new process, s",
    "cold_start_s": "of it, the start of Spark",
    "cold_grid_s": "of it, the pass over all rows",
}


def keep(scorecard: Path, name: str) -> None:
    """Cut a scorecard down to what the pages show."""
    full = json.loads(scorecard.read_text(encoding="utf-8"))
    kept = {
        "rows": [
            {
                "policy": row["policy"],
                "job": row["job"],
                "metrics": {key: row["metrics"][key] for key, _, _ in COLUMNS},
            }
            for row in full["rows"]
            if all(key in row["metrics"] for key, _, _ in COLUMNS)  # the bound is a cost alone
        ],
        "statistic": full["statistic"],
        "cells_per_policy": len(full["cells"]) // len(full["rows"]),
        "versions": full["versions"],
    }
    (FIGURES / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def scorecard_table(name: str) -> str:
    """Return rows of a kept scorecard: the value of each metric, and its 95 % interval."""
    card = json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))
    lines = ["| policy | " + " | ".join(title for _, title, _ in COLUMNS) + " |"]
    lines.append("|---" * (len(COLUMNS) + 1) + "|")
    for row in card["rows"]:
        cells = []
        for key, _, form in COLUMNS:
            metric = row["metrics"][key]
            low, high = form.format(metric["low"]), form.format(metric["high"])
            cells.append(f"{form.format(metric['value'])} ({low} to {high})")
        lines.append(f"| {row['policy']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def statistic(name: str) -> str:
    """Return the statistic of a kept scorecard; earlier ones hold interquartile means."""
    card = json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))
    return str(card.get("statistic", "interquartile mean"))


def claim_table(verdicts: list[dict[str, Any]]) -> str:
    """Return the agents of all seeds against each policy."""
    lines = [
        "| job | against | cost, ours | theirs | change (95 % bound) | SLO s, ours | theirs "
        "| change (95 % bound) | 10 % cheaper, no later |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines.extend(
        f"| {v['job']} | {v['against']} | {v['cost']:.3f} | {v['cost_against']:.3f} "
        f"| {100 * v['cost_change']:+.1f} % ({100 * v['cost_change_upper']:+.1f} %) "
        f"| {v['slo_s']:.0f} | {v['slo_s_against']:.0f} "
        f"| {v['slo_s_change']:+.0f} ({v['slo_s_change_upper']:+.0f}) "
        f"| {'yes' if v['holds'] else 'no'} |"
        for v in verdicts
    )
    return "\n".join(lines)


def search(tuning: list[dict[str, Any]] | dict[str, Any]) -> str:
    """Say how DS2 was tuned: by a listed grid, or as its file's provenance says."""
    if isinstance(tuning, list):
        return f"by a grid of {len(tuning)} settings"
    return f"by `dsp-gym tune ds2 {tuning['tuned_on']}` in {tuning['trials']} trials"


def bench_table(bench: dict[str, Any]) -> str:
    """Rates with their method."""
    lines = [
        "| what | median | slowest to fastest | bar | runs | threads |",
        "|---|---|---|---|---|---|",
    ]
    for rate in bench["rates"]:
        bar = "–" if rate["bar"] is None else _figure(rate["bar"])
        lines.append(
            f"| {rate['name']} | {_figure(rate['median'])} "
            f"| {_figure(rate['low'])} to {_figure(rate['high'])} "
            f"| {bar} | {rate['runs']} | {rate['threads']} |"
        )
    return "\n".join(lines)


def two_cores(bench: dict[str, Any]) -> str:
    """What two cores give at most, by decisions per CPU-second, where these were timed."""
    ending = ", per CPU-second"
    found = [rate for rate in bench["rates"] if rate["name"].endswith(ending)]
    by_name = {rate["name"]: rate for rate in bench["rates"]}
    told = "\n".join(
        f"- {rate['name'].removesuffix(ending)}: {_figure(rate['median'])} decisions per "
        f"CPU-second, so at most {_figure(2 * rate['median'])} decisions/s"
        + (f" where {_figure(bar)} were wanted." if bar else ".")
        for rate in found
        for bar in [by_name[rate["name"].removesuffix(ending)]["bar"]]
    )
    if not told:
        return ""
    return f"""
**What stops two cores.** A rate by the clock depends on what else the machine does, the rate per
second of processor time much less. Two cores give at most twice that:

{told}

Guardrails, masks and reward run on one core, which the other waits for.
"""


def speed(bench: dict[str, Any]) -> str:
    """Speed of the environment, of learning, of the pipeline and of shadow mode."""
    spark = json.loads((FIGURES / "spark-20m.json").read_text(encoding="utf-8"))
    shadow = json.loads((FIGURES / "bench-shadow.json").read_text(encoding="utf-8"))
    told = "\n".join(
        f"| {TOLD[name]} | {_figure(value)} "
        f"| {_figure(spark['bars'][name]) if name in spark['bars'] else '–'} |"
        for name, value in spark["told"].items()
    )
    figures = "\n".join(
        f"| {f['name']} | {_figure(f['value'])} {f['unit']} "
        f"| {'–' if f['bar'] is None else _figure(f['bar'])} |"
        for f in shadow["figures"]
    )
    return f"""Rates depend mostly on the machine. Two virtual cores may share a physical one:
`all_cores_over_one` is the work of all cores as a multiple of one core's, at the time of the
measurement. A bar is the target, for two dedicated idle cores; ratios within one run hold on other
machines, too.

**Environment and learning.** `dsp-gym bench env --json`: job `bench-8` (eight vertices, every
mechanism), decisions of 60 s in ticks of 1 s, guardrails of the shipped experiments, observation,
reward, masks and autoreset included; the median of {bench["rates"][0]["runs"]} runs of two seconds
or more, after a warm-up. Without guardrails more jobs fall behind, terminate and restart, so
that row is slower. Machine: {_machine(bench)}.

{bench_table(bench)}
{two_cores(bench)}
**Data pipeline.** `dsp-gym bench spark --json`, 20 million raw rows. Machine: {_machine(spark)}.

{bench_table(spark)}

| what | measured | bar |
|---|---|---|
{told}

**Shadow mode.** `dsp-gym bench shadow --json`, four policies watching. Machine: {_machine(shadow)}.

| what | measured | bar |
|---|---|---|
{figures}"""


def _figure(value: float) -> str:
    """Return a rate as a whole number, a ratio or a few seconds with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def learning_from_data() -> str:
    """Both claims about datasets, or the command that makes a missing figure."""
    parts = []
    for name, written in (("q11-cloned", cloning), ("q11-offline", offline)):
        file = FIGURES / f"{name}.json"
        parts.append(
            written(json.loads(file.read_text(encoding="utf-8")))
            if file.is_file()
            else f"`docs/figures/{name}.json` is not there yet: `make validate` writes it."
        )
    return "\n\n".join(parts)


def cloning(found: dict[str, Any]) -> str:
    """Clones against their teacher."""
    lines = [
        "| | Justin | clones, mean | change | 95 % interval | each training |",
        "|---|---|---|---|---|---|",
    ]
    for metric, title, form in (("cost", "money", "{:.4f}"), ("slo_s", "SLO seconds", "{:.1f}")):
        row = found[metric]
        low, high = (f"{100 * end:+.2f}" for end in row["interval"])
        each = ", ".join(f"{100 * change:+.2f}" for change in row["by_seed"])
        lines.append(
            f"| {title} | {form.format(row['teacher'])} | {form.format(row['clone'])} "
            f"| {100 * row['change']:+.2f} % | {low} to {high} % | {each} % |"
        )
    return f"""**Imitation.** {len(found["seeds"])} agents (seeds {_listed(found["seeds"])}) imitate
Justin's decisions on a thousand days, read from a dataset, and take no step of their own. On
{found["episodes"]} loads outside the dataset, without guardrails, the bar is its cost and its SLO
seconds within {100 * found["within"]:.0f} % each: {_verdict(found)}. Means over loads
and trainings; the interval resamples both. Machine: {_machine(found)}.

```bash
dsp-gym rollout q11-justin && dsp-gym dataset build q11-justin
dsp-gym train configs/experiments/q11-cloned.yaml
python -m agents.studies.dataset_claim cloning q11-cloned --out docs/figures/q11-cloned.json
```

{chr(10).join(lines)}"""


def offline(found: dict[str, Any]) -> str:
    """Steps of agents with and without a dataset."""
    steps, by_seed, curves = found["steps"], found["by_seed"], found["curves"]
    lines = ["| steps until there | from scratch | pretrained |", "|---|---|---|"]
    lines += [
        f"| seed {seed} | {steps_text(alone)} | {steps_text(taught)} |"
        for seed, alone, taught in zip(
            found["seeds"], by_seed["scratch"], by_seed["pretrained"], strict=True
        )
    ]
    alone, taught = (steps_text(steps[name]) for name in ("scratch", "pretrained"))
    lines.append(f"| curve of the interquartile mean | {alone} | {taught} |")
    ratio = "" if found["ratio"] is None else f", with {found['ratio']:.2f} of them"
    low, high = ("more than all" if end is None else f"{end:.2f}" for end in found["interval"])
    first = {name: f"{curve[0][1]:.3f}" for name, curve in curves.items()}
    return f"""**A head start.** Agents pretrained on a dataset of a policy that acts late, against
the same agents from scratch. After {curves["scratch"][-1][0]:,} steps, agents from scratch reach a
return of {found["final"]:.3f} on the validation loads; 95 % of it is {found["threshold"]:.3f}. The
bar for pretrained agents is to reach it with at most half of the steps: {_verdict(found)}{ratio}
(95 % of draws of five seeds with replacement: {low} to {high}). Curves are interquartile means over
seeds
{_listed(found["seeds"])}, seen every {found["eval_every"]:,} steps; before the first step they are
at {first["scratch"]} from scratch and at {first["pretrained"]} pretrained. The table lists each
seed's own steps. Machine: {_machine(found)}.

```bash
dsp-gym rollout q11-late && dsp-gym dataset build q11-late
python -m agents.studies.dataset_claim offline q11-offline --out docs/figures/q11-offline.json
```

{chr(10).join(lines)}"""


def _listed(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds))


def _machine(found: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in found["machine"].items())


def _verdict(found: dict[str, Any]) -> str:
    return "they meet it" if found["holds"] else "they miss it"


def steps_text(count: float | None) -> str:
    """Write a number of training steps; None: the mark was not reached."""
    return "not within the steps of the former" if count is None else f"{count:,.0f}"


def page() -> str:
    """Return the results page."""
    claim = json.loads((FIGURES / "q11.json").read_text(encoding="utf-8"))
    bench = json.loads((FIGURES / "bench.json").read_text(encoding="utf-8"))
    machine = _machine(claim)
    shipped = json.loads((FIGURES / "q11-shipped.json").read_text(encoding="utf-8"))
    seeds = [name.removeprefix("seed-") for name in claim["agents"]]
    own = [v for v in claim["verdicts"] if v["job"] == "nexmark-q11"]
    other = [v for v in claim["verdicts"] if v["job"] != "nexmark-q11"]
    return f"""# Results

This page has the measured results beside the [comparison at equal lateness](core-v2.md): an agent
trained for one job, learning from recorded data, and the speed of simulation, training and shadow
mode. `python docs/results.py` writes it from `docs/figures/`, which `make validate` fills.
Machine: {machine}.

{PICTURE}

## The agent of one job

`dsp-gym train configs/experiments/q11.yaml` trains {len(seeds)} agents (seeds
{", ".join(seeds)}) on Nexmark Q11; `python -m agents.studies.claim` runs all of them
on {claim["loads"]} loads they have not seen, with the guardrails they were trained with. DS2 was
tuned {search(claim["tuning"])} on training loads, for the reward the agents
learned from; the best is `{json.dumps(claim["ds2_tuned"])}`. Cost is money requested; SLO seconds
are per episode of two hours, downtime counted. Changes are means over seeds and loads, paired; the
bound is one-sided, 95 %, over both.

{claim_table(own)}

The agents run on the job of their training. Q11 gains from more memory, on which DS2 does not
decide, so the comparison with Justin is the fair one.

The second table has the same comparison on jobs outside the training. The agents do not
generalise: on most of these jobs their SLO seconds are several times those of Justin, or of DS2
tuned on Q11.

{claim_table(other)}

The best of the five agents ships as the policy `learned-q11`. This agent alone, on the same loads
(`python -m agents.studies.claim configs/experiments/q11.yaml --policy learned-q11`), and against
DS2 tuned {search(shipped["tuning"])}, `{json.dumps(shipped["ds2_tuned"])}`:

{claim_table(shipped["verdicts"])}

On the same loads, every column of the scorecard
(`dsp-gym evaluate configs/experiments/q11.yaml --policies all,learned-q11`),
{statistic("q11-scorecard")} and 95 % interval over loads:

{scorecard_table("q11-scorecard")}

## The World Cup trace

`dsp-gym train configs/experiments/q11-worldcup.yaml`, then `dsp-gym evaluate` of it: trained on the
load of 10 June 1998, compared on that of 23 June, each day in two hours. The traces are not part of
the project (`DSP_GYM_DATA`). Twenty seeds differ in the simulation's and the load's noise.

{scorecard_table("worldcup")}

## Learning from data

{learning_from_data()}

## Speed

{speed(bench)}
"""


def readme_part() -> str:
    """Return the README's table: of core-v3, and of runs on a real Flink."""
    found = json.loads((FIGURES / "core-v3.json").read_text(encoding="utf-8"))
    real = json.loads((FIGURES / "validation" / "policies.json").read_text(encoding="utf-8"))
    return f"{BEGIN}\n{readme_block(found)}\n\n{real_flink(real)}\n{END}"


def core_v2() -> dict[str, Any] | None:
    """Say what is kept of the frontier; None before it was run."""
    return json.loads(PUBLISHED.read_text(encoding="utf-8")) if PUBLISHED.is_file() else None


def write_cards(frontier: dict[str, Any]) -> None:
    """Put the comparison into the cards of the shipped agents."""
    for name, file in CARDS.items():
        text = file.read_text(encoding="utf-8")
        file.write_text(with_part(text, card_part(frontier, name)), encoding="utf-8")


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--q11", type=Path, help="scorecard of the shipped experiment")
    parser.add_argument("--worldcup", type=Path, help="scorecard of the World Cup experiment")
    parser.add_argument("--core-v2", type=Path, help="results.json of the benchmark core-v2")
    parser.add_argument("--core-v3", type=Path, help="results.json of a test set of core-v3")
    given = parser.parse_args()
    if given.q11 is not None:
        keep(given.q11, "q11-scorecard")
    if given.worldcup is not None:
        keep(given.worldcup, "worldcup")
    if given.core_v2 is not None:
        kept = json.dumps(cut(given.core_v2), indent=1) + "\n"
        PUBLISHED.write_text(kept, encoding="utf-8")
    if given.core_v3 is not None:
        kept = json.dumps(cut_referee(given.core_v3), indent=1) + "\n"
        (FIGURES / "core-v3.json").write_text(kept, encoding="utf-8")
    if (frontier := core_v2()) is not None:
        write_cards(frontier)
        draw(first_cell(frontier), FIGURES)
    (DOCS / "results.md").write_text(page(), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2] if END in rest else rest
    README.write_text(before + readme_part() + after, encoding="utf-8")


if __name__ == "__main__":
    main()
