"""Pages about what ships: policies, guardrails, jobs, loads, experiments."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.metadata import entry_points

from dsp_gym.config.files import load_model, names
from dsp_gym.config.model import ConfigModel
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.guardrails.chain import ORDER
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.catalog import load_job
from dsp_gym.loads.spec import LoadConfig
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import GROUP, available, load_class
from generator.markdown import anchor, cleaned, code, page, plain, table
from generator.schema import Schema, properties


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
        if not any(field.is_required() for field in cls.Config.model_fields.values()):
            parts += inner_defaults(cls.Config())
        sections.append("\n\n".join(parts))
    for name in sorted(shipped):
        config = load_model(PolicyConfig, "policies", name)
        values = table(
            ["parameter", "value"], [[f"`{k}`", code(v)] for k, v in config.params.items()]
        )
        said = f"`{config.policy}` with these parameters:\n\n{values}"
        sections.append(f"## {name}\n\n{said}")
    for title, definition in sorted(inner.items()):
        about = plain(definition.get("description", ""))
        sections.append(f"## {title}\n\n{about}\n\n{properties(definition)}")
    return page(
        "Policies",
        "What `--policy`, an experiment or a benchmark may name, besides the folder of a trained "
        "policy. Parameters go under `params:`; see [Policies](../concepts/policies.md).",
        table(["name", "about"], rows),
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
        [
            [
                f"`{n}`",
                ", ".join(
                    f"`{g.kind}`" for g in load_model(GuardrailsConfig, "guardrails", n).guardrails
                )
                or "none",
            ]
            for n in names("guardrails")
        ],
    )
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
            [
                f"`{name}`",
                spec.description,
                ", ".join(v.name for v in spec.vertices),
                f"{spec.source.rate_per_s:,.0f}",
                spec.memory.levels,
                f"{spec.slo.latency_s:g}",
            ]
        )
        fitted = "; ".join(spec.used_in_fit) or "none"
        sources.append([f"`{name}`", fitted, f"`{spec.fit_script}`" if spec.fit_script else "–"])
    return page(
        "Shipped jobs",
        "Files in `configs/jobs/`; each number there names its source.",
        table(
            [
                "name",
                "about",
                "vertices",
                "reference records/s",
                "memory levels",
                "latency bound s",
            ],
            rows,
        ),
        "## What was used in a fit\n\nA published number stands here if a parameter of the job "
        "was fitted or chosen to meet it. All others are predictions.\n\n"
        + table(["job", "published numbers used", "command that fits"], sources),
    )


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
        train, agent = experiment.loads.train, experiment.agent
        counts = f"{agent.total_steps:,} x {len(agent.seeds)}"
        if agent.kind == "planning":
            counts = f"planned, {len(agent.late_prices)} prices x {len(agent.seeds)}"
        rows.append(
            [
                f"`{name}`",
                experiment.description,
                ", ".join(f"`{job}`" for job in experiment.jobs),
                ", ".join(f"`{e.name}`" for e in train.loads) if train else "none",
                counts,
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
    frontiers = []
    for name in names("frontiers"):
        frontier = load_model(FrontierConfig, "frontiers", name)
        groups = {"seen": frontier.jobs.seen, "unseen": frontier.jobs.unseen}
        frontiers.append(
            [
                f"`{name}`",
                frontier.description,
                "; ".join(f"{len(group.names())} {kind}" for kind, group in groups.items()),
                ", ".join(f"`{policy.name}`" for policy in frontier.policies),
            ]
        )
    referees = []
    for name in names("referees"):
        referee = load_model(RefereeConfig, "referees", name)
        referees.append(
            [
                f"`{name}`",
                referee.description,
                ", ".join(f"`{kind.name}`" for kind in referee.jobs),
                ", ".join(f"{family.triples} `{family.name}`" for family in referee.loads),
                ", ".join(f"`{policy.name}`" for policy in referee.policies),
            ]
        )
    return page(
        "Shipped experiments and benchmarks",
        "Files in `configs/experiments/`, for `dsp-gym train` and `dsp-gym evaluate`:",
        table(["name", "about", "jobs", "training loads", "decisions x seeds"], rows),
        "Files in `configs/benchmarks/`, for `dsp-gym evaluate`:",
        table(["name", "about", "jobs", "policies"], benchmarks),
        "Files in `configs/frontiers/`, for `dsp-gym evaluate`:",
        table(["name", "about", "jobs", "policies"], frontiers),
        "Files in `configs/referees/`, for `dsp-gym evaluate`:",
        table(["name", "about", "jobs", "triples", "policies"], referees),
    )
