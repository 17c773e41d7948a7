"""Writes the reference pages whose tables come from code, and the table of published numbers.

    python docs/generate.py                  docs/reference/*.md and docs/reproduction.md
    python docs/generate.py --tables-only    the reference alone, in a few seconds

Published numbers are recomputed by `dsp-gym reproduce`; some of them need the data folder
(DSP_GYM_DATA). A test compares the committed reference with what this file writes.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import typer

from dsp_gym.cli import app
from dsp_gym.config.files import load_model, names, write_atomic
from dsp_gym.config.kinds import KINDS, model_of
from dsp_gym.config.model import ConfigModel
from dsp_gym.envs.action import LOGITS, MEMORY_NAMES, MOVE_NAMES
from dsp_gym.envs.observation import JOB_FEATURES, VERTEX_FEATURES, ObservationLayout
from dsp_gym.envs.registration import FROM_CONFIG, IDS
from dsp_gym.envs.reward import RewardWeights
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.scorecard import METRICS as SCORES
from dsp_gym.experiment import ExperimentConfig
from dsp_gym.guardrails.chain import ORDER
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.catalog import load_job
from dsp_gym.loads.spec import LoadConfig
from dsp_gym.loop.documents import METRICS
from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import GROUP, available, load_class
from dsp_gym.reproduce.check import Check
from dsp_gym.reproduce.registry import data_folder, reproduce, studies

DOCS = Path(__file__).resolve().parent

UNTYPED = {
    "t_s": "seconds on the collector's clock",
    "status": "RUNNING, SAVEPOINTING, RESTARTING or FAILED",
    "parallelism": "subtasks observed running",
    "memory_level": "memory level observed running; -1: no managed memory",
}
"""What the wire schema carries outside `metrics`, so that `METRICS` does not describe it."""

Row = Sequence[object]
Schema = Mapping[str, Any]


def pages() -> dict[str, str]:
    """Path below docs/ and content of every page that depends on code alone."""
    return {
        "reference/environments.md": environments(),
        "reference/observation.md": observation(),
        "reference/action-and-reward.md": action_and_reward(),
        "reference/metrics.md": metrics(),
        "reference/policies.md": policies(),
        "reference/guardrails.md": guardrails(),
        "reference/jobs.md": jobs(),
        "reference/loads.md": loads(),
        "reference/experiments.md": experiments(),
        "reference/scorecard.md": scorecard(),
        "reference/cli.md": command_line(),
        **{f"reference/config-{kind}.md": config_kind(kind) for kind in KINDS},
    }


def environments() -> str:
    """Registered ids and the sizes of their spaces."""
    rows = []
    for name, job in IDS.items():
        spec = load_job(job)
        count = len(spec.vertices)
        size = ObservationLayout(count).size
        rows.append([f"`{name}`", f"`{job}`", count, size, 2 * count, count * LOGITS])
    rows.append([f"`{FROM_CONFIG}`", "`config=` an experiment, or `job=`", "", "", "", ""])
    head = ["id", "job", "vertices", "observation", "action", "action mask"]
    return page(
        "Environment ids",
        "Registered on `import dsp_gym`. `gymnasium.make(id)` gives one job, "
        "`gymnasium.make_vec(id, num_envs=n)` a batch. The last three columns are lengths: of the "
        "flat observation, of the MultiDiscrete action, and of the mask over all moves. "
        "`dsp-gym envs` lists the ids.",
        table(head, rows),
    )


def observation() -> str:
    """Features of the flat observation."""
    per_vertex = table(
        ["#", "feature", "meaning"],
        [[i, f"`{name}`", about] for i, (name, about) in enumerate(VERTEX_FEATURES.items())],
    )
    per_job = table(
        ["#", "feature", "meaning"],
        [[i, f"`{name}`", about] for i, (name, about) in enumerate(JOB_FEATURES.items())],
    )
    return page(
        "Observation features",
        "In the order in which they stand in the flat vector; see "
        "[Observation](../environment/observation.md) for the layout.",
        f"## Per vertex\n\n{per_vertex}",
        f"## Per job\n\n{per_job}",
    )


def action_and_reward() -> str:
    """Moves and reward terms."""
    moves = table(["index", "parallelism"], enumerate(MOVE_NAMES))
    memory = table(["index", "memory level"], enumerate(MEMORY_NAMES))
    terms = table(
        ["term", "default weight", "meaning before weighting"],
        [[f"`{n}`", field.default, field.description]
         for n, field in RewardWeights.model_fields.items()],
    )  # fmt: skip
    return page(
        "Moves and reward terms",
        "See [Action](../environment/action.md) and [Reward](../environment/reward.md).",
        f"## Moves of parallelism\n\n{moves}",
        f"## Moves of memory\n\n{memory}",
        f"## Reward terms\n\n{terms}",
    )


def metrics() -> str:
    """Fields of a snapshot."""
    about = UNTYPED | METRICS
    per_job = table(["metric", "meaning"], [[f"`{n}`", about[n]] for n in PER_JOB])
    per_vertex = table(["metric", "meaning"], [[f"`{n}`", about[n]] for n in PER_VERTEX])
    return page(
        "Metrics of a snapshot",
        "Fields of `MetricsSnapshot`. Units stand in the names: `_s` seconds, `_ms` milliseconds, "
        "`_mib` MiB, `_per_s` per second, `_ms_per_s` milliseconds per second. Unknown is NaN in "
        "arrays, `null` on the wire and `None` in the view of one job.",
        f"## Per job\n\n{per_job}",
        f"## Per vertex\n\n{per_vertex}",
    )


def policies() -> str:
    """Installed policies and shipped configurations of them."""
    offered = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    ours = {name for name, value in offered.items() if value.startswith(("baselines.", "agents."))}
    shipped = set(names("policies"))
    rows = [
        [f"[`{name}`](#{anchor(name)})" if name in ours else f"`{name}`", about]
        for name, about in available().items()
        if name in ours | shipped
    ]
    sections = []
    inner: dict[str, Schema] = {}
    for name in sorted(ours):
        cls = load_class(name)
        schema = cls.Config.model_json_schema()
        inner |= schema.get("$defs", {})
        parts = [f"## {name}", cleaned(cls), properties(schema)]
        parts += inner_defaults(cls.Config())
        sections.append("\n\n".join(parts))
    for name in sorted(shipped):
        config = load_model(PolicyConfig, "policies", name)
        values = table(["parameter", "value"], [[f"`{k}`", code(v)] for k, v in
                                               config.params.items()])  # fmt: skip
        sections.append(f"## {name}\n\n`{config.policy}` with these parameters:\n\n{values}")
    for title, definition in sorted(inner.items()):
        about = plain(definition.get("description", ""))
        sections.append(f"## {title}\n\n{about}\n\n{properties(definition)}")
    return page(
        "Policies",
        "What `--policy`, an experiment or a benchmark may name, besides the folder of a trained "
        "policy. Parameters go under `params:`; see [Policies](../concepts/policies.md).",
        table(["name", "what it is"], rows),
        *sections,
    )


def inner_defaults(config: ConfigModel) -> Iterator[str]:
    """What a model inside a policy's configuration sets differently."""
    for key in type(config).model_fields:
        inner = getattr(config, key)
        if isinstance(inner, ConfigModel):
            usual = type(inner)()
            other = [
                f"`{name}: {code(value).strip('`')}`"
                for name, value in inner.model_dump(mode="json").items()
                if value != usual.model_dump(mode="json")[name]
            ]
            if other:
                yield f"`{key}` differs from its defaults in {', '.join(other)}."


def guardrails() -> str:
    """Guardrails in chain order, with their keys."""
    schema = GuardrailsConfig.model_json_schema()
    by_kind = {
        definition["properties"]["kind"]["default"]: (title, definition)
        for title, definition in schema["$defs"].items()
        if "kind" in definition.get("properties", {})
    }
    rows, sections = [], []
    for place, kind in enumerate(ORDER, 1):
        title, definition = by_kind[kind]
        module = importlib.import_module(f"dsp_gym.guardrails.{kind}")
        rows.append([place, f"[`{kind}`](#{anchor(kind)})", cleaned(module)])
        cls = getattr(module, title.removesuffix("Config"))
        keys = properties(definition).replace("(#policyconfig)", "(config-policies.md)")
        sections.append(f"## {kind}\n\n{cleaned(cls)}\n\n{keys}")
    shipped = table(
        ["name", "guardrails"],
        [[f"`{n}`", ", ".join(f"`{g.kind}`" for g in
          load_model(GuardrailsConfig, "guardrails", n).guardrails) or "none"]
         for n in names("guardrails")],
    )  # fmt: skip
    return page(
        "Guardrails",
        "In the order in which a chain runs them, whatever the order in the file; see "
        "[Guardrails](../concepts/guardrails.md).",
        table(["order", "kind", "what it does"], rows),
        f"Shipped chains (`configs/guardrails/`):\n\n{shipped}",
        *sections,
    )


def jobs() -> str:
    """Shipped jobs and what their numbers were fitted to."""
    rows, sources = [], []
    for name in names("jobs"):
        spec = load_job(name)
        rows.append(
            [f"`{name}`", spec.description, ", ".join(v.name for v in spec.vertices),
             f"{spec.source.rate_per_s:,.0f}", spec.memory.levels, f"{spec.slo.latency_s:g}"]
        )  # fmt: skip
        fitted = "; ".join(spec.used_in_fit) or "none"
        sources.append([f"`{name}`", fitted, f"`{spec.fit_script}`" if spec.fit_script else "–"])
    return page(
        "Shipped jobs",
        "Files in `configs/jobs/`; each number there names its source.",
        table(["name", "about", "vertices", "reference records/s", "memory levels",
               "latency bound s"], rows),
        "## What was used in a fit\n\nA published number stands here if a parameter of the job "
        "was fitted or chosen to meet it. All others are predictions.\n\n"
        + table(["job", "published numbers used", "command that fits"], sources),
    )  # fmt: skip


def loads() -> str:
    """Shipped loads."""
    rows = []
    for name in names("loads"):
        config = load_model(LoadConfig, "loads", name)
        rows.append([f"`{name}`", config.load.form, config.description])
    return page(
        "Shipped loads",
        "Files in `configs/loads/`: multipliers of a job's reference rate over time. Forms and "
        "their parameters: [configuration of loads](config-loads.md).",
        table(["name", "form", "about"], rows),
    )


def experiments() -> str:
    """Shipped experiments and benchmarks."""
    rows = []
    for name in names("experiments"):
        experiment = load_model(ExperimentConfig, "experiments", name)
        train = experiment.loads.train
        rows.append(
            [
                f"`{name}`",
                experiment.description,
                ", ".join(f"`{job}`" for job in experiment.jobs),
                ", ".join(f"`{e.name}`" for e in train.loads) if train else "none",
                f"{experiment.agent.total_steps:,} x {len(experiment.agent.seeds)}",
            ]
        )
    benchmarks = []
    for name in names("benchmarks"):
        benchmark = load_model(BenchmarkConfig, "benchmarks", name)
        benchmarks.append(
            [
                f"`{name}`",
                benchmark.description,
                ", ".join(f"`{job}`" for job in benchmark.jobs),
                ", ".join(f"`{entrant.name}`" for entrant in benchmark.policies),
            ]
        )
    return page(
        "Shipped experiments and benchmarks",
        "Files in `configs/experiments/`, for `dsp-gym train` and `dsp-gym evaluate`:",
        table(["name", "about", "jobs", "training loads", "decisions x seeds"], rows),
        "Files in `configs/benchmarks/`, for `dsp-gym evaluate`:",
        table(["name", "about", "jobs", "policies"], benchmarks),
    )


def scorecard() -> str:
    """Columns of a scorecard."""
    return page(
        "Scorecard columns",
        "Measured per episode (one policy, job, load and seed); less is better in all of them. "
        "See [Evaluation](../concepts/evaluation.md).",
        table(["name", "meaning"], [[f"`{name}`", about] for name, about in SCORES.items()]),
    )


def command_line() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    found = list(commands(group, ()))
    rows = [[f"[`dsp-gym {name}`](#{anchor('dsp-gym ' + name)})", first_line(command.help)]
            for name, command in found]  # fmt: skip
    sections = []
    for name, command in found:
        parameters = table(
            ["argument or option", "meaning"],
            [[shown(p), described(p)] for p in command.params if p.name != "help"],
        )
        sections.append(f"## dsp-gym {name}\n\n{(command.help or '').strip()}\n\n{parameters}")
    return page(
        "Commands",
        "Every command has `--help` with examples. Wrong input ends with one message (file, key, "
        "value, remedy) and exit code 2; `--debug` adds the traceback.",
        table(["command", "does"], rows),
        *sections,
    )


def commands(group: Any, prefix: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Every command below a group, by its full name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*prefix, name))
        else:
            yield " ".join((*prefix, name)), command


def shown(parameter: Any) -> str:
    """How a parameter is written on the command line."""
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).strip('{}').upper()}`"
    return "`" + "`, `".join([*parameter.opts, *parameter.secondary_opts]) + "`"


def described(parameter: Any) -> str:
    """What it means, and its default."""
    text = plain(getattr(parameter, "help", None) or "")
    default = parameter.default
    if parameter.required:
        return f"{text} Required."
    if isinstance(default, bool) or default in (None, ()) or "default" in text.lower():
        return text
    return f"{text} Default: `{default}`."


def config_kind(kind: str) -> str:
    """Every key of one kind of configuration file."""
    model = model_of(kind)
    schema = model.model_json_schema()
    sections = [f"## {model.__name__}\n\n{cleaned(model)}\n\n{properties(schema)}"]
    for title, definition in schema.get("$defs", {}).items():
        about = plain(definition.get("description", ""))
        sections.append(f"## {title}\n\n{about}\n\n{properties(definition)}")
    return page(
        f"Configuration: {kind}",
        f"Keys of the files in `configs/{kind}/`. Check a file with `dsp-gym config check FILE`; "
        f"`dsp-gym config schema {kind}` prints the same as JSON Schema for editors.",
        *sections,
    )


def properties(schema: Schema) -> str:
    """A table of the keys of an object."""
    required = set(schema.get("required", ()))
    rows = []
    for name, entry in schema.get("properties", {}).items():
        if name in required:
            default = "**required**"
        elif "default" in entry:
            default = code(entry["default"])
        else:
            default = "see there" if "$ref" in entry else "empty"
        rows.append([f"`{name}`", kind_of_value(entry), default, entry.get("description", "")])
    return table(["key", "value", "default", "meaning"], rows) if rows else "No keys."


def kind_of_value(entry: Schema) -> str:
    """The type of a key in words, with its bounds."""
    if "$ref" in entry:
        name = entry["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchor(name)})" if name != "Ds2Config" else "as [ds2](#ds2)"
    if "const" in entry:
        return f"`{entry['const']}`"
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"])
    for key in ("anyOf", "oneOf"):
        if key in entry:
            return " or ".join(dict.fromkeys(kind_of_value(option) for option in entry[key]))
    match entry.get("type"):
        case "null":
            return "none"
        case "array" if "prefixItems" in entry:
            return "[" + ", ".join(kind_of_value(item) for item in entry["prefixItems"]) + "]"
        case "array":
            return f"list of {kind_of_value(entry.get('items', {}))}"
        case "object":
            values = entry.get("additionalProperties")
            return f"mapping to {kind_of_value(values)}" if isinstance(values, dict) else "mapping"
        case "boolean":
            return "true or false"
        case "string":
            return "text"
        case "number" | "integer":
            return f"{entry['type']}{bounds(entry)}"
    return "any"


def bounds(entry: Schema) -> str:
    """The bounds of a number, as signs."""
    signs = {"minimum": ">=", "ge": ">=", "exclusiveMinimum": ">", "gt": ">", "maximum": "<=",
             "le": "<=", "exclusiveMaximum": "<", "lt": "<"}  # fmt: skip
    found = [f"{sign} {entry[key]:g}" for key, sign in signs.items() if key in entry]
    return f" {', '.join(found)}" if found else ""


def reproduction(data: Path | None) -> str:
    """The table of published numbers, study by study."""
    sections = []
    every: list[Check] = []
    for study, about in studies().items():
        checks = reproduce(study, data)
        every += checks
        rows = [
            [
                f"`{check.name}`",
                check.claim,
                check.published,
                "–" if check.ours is None else check.ours,
                check.tolerance,
                "yes" if check.used_in_fit else "no",
                {True: "ok", False: "**failed**", None: "–"}[check.passed],
                check.note or "",
            ]
            for check in checks
        ]
        head = ["check", "claim", "published", "ours", "tolerance", "in fit", "result", "note"]
        sections.append(f"## {study}\n\n{about}.\n\n{table(head, rows)}")
    bar = [check for check in every if check.passed is not None]
    unseen = [check for check in bar if not check.used_in_fit]
    summary = (
        f"{len(bar)} checks have a bar, {sum(not c.failed for c in bar)} of them pass. "
        f"{len(unseen)} compare with numbers no parameter was fitted to, "
        f"{sum(not c.failed for c in unseen)} of them pass. "
        f"{len(every) - len(bar)} are reported without a bar or were skipped."
    )
    return page(
        "Published numbers",
        "Recomputed by `dsp-gym reproduce` and written here by `python docs/generate.py`. "
        '"In fit" says whether a parameter of the job was fitted or chosen to meet the number; '
        "[Shipped jobs](reference/jobs.md#what-was-used-in-a-fit) lists them by job. The StreamBed "
        "study needs the folder of measured data (`DSP_GYM_DATA`).",
        summary,
        reproduction_figures(),
        *sections,
    )


def reproduction_figures() -> str:
    """The papers' figures as ours, each with its seed and command."""
    plots = _plots()
    parts = [
        f"![{plot.title}](figures/reproduction/{name}.svg)\n\n**{plot.title}.** {plot.caption} "
        f"{plot.seeds}; the numbers: `{plot.command}`, the drawing: "
        "`python docs/generate.py`."
        for name, plot in plots.PLOTS.items()
    ]
    return "\n\n".join(["## Figures", *parts])


def _plots() -> Any:
    """The module beside this file, which needs matplotlib; also where docs/ is not on the path."""
    where = importlib.util.spec_from_file_location("plots", DOCS / "reproduction_plots.py")
    assert where is not None
    assert where.loader is not None
    module = importlib.util.module_from_spec(where)
    sys.modules["plots"] = module  # dataclasses look their module up
    where.loader.exec_module(module)
    return module


def page(title: str, *parts: str) -> str:
    """A page of Markdown."""
    note = "<!-- Written by docs/generate.py; do not edit. -->"
    return "\n\n".join([note, f"# {title}", *parts]) + "\n"


def table(head: Sequence[str], rows: Iterable[Row]) -> str:
    """A Markdown table; text of a cell stays on one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines)


def cell(value: object) -> str:
    """A value on one line, safe inside a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: object) -> str:
    """A value as it would stand in YAML."""
    if value is None:
        return "none"
    if value in ("", [], {}):
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        return "`{" + ", ".join(f"{k}: {v}" for k, v in value.items()) + "}`"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"{len(value)} entries"
    return f"`{value}`"


def cleaned(thing: object) -> str:
    """The docstring of a class or module as plain paragraphs."""
    text = inspect.getdoc(thing) or ""
    if isinstance(thing, type) and issubclass(thing, ConfigModel):
        return plain(text)
    return plain(text.partition("\n\n")[0])


def plain(text: str) -> str:
    """Text of a docstring as Markdown."""
    return re.sub(r"``(.*?)``", r"`\1`", text).strip()


def first_line(text: str | None) -> str:
    """The first paragraph of a docstring."""
    return plain((text or "").strip().partition("\n\n")[0])


def anchor(title: str) -> str:
    """The id that MkDocs gives a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tables-only", action="store_true", help="leave reproduction.md alone")
    written = pages()
    if not parser.parse_args().tables_only:
        plots, data = _plots(), data_folder()
        written["reproduction.md"] = reproduction(data)
        if data is not None:
            for name, plot in plots.PLOTS.items():
                written[f"figures/reproduction/{name}.svg"] = plots.drawn(plot, data)
    for name, content in written.items():
        write_atomic(DOCS / name, content)
        typer.echo(f"docs/{name}")


if __name__ == "__main__":
    main()
