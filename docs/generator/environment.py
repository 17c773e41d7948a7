"""Pages about what an agent sees and does: features, moves, rewards, metrics, scores."""

from __future__ import annotations

from dsp_gym.envs.action import MEMORY_NAMES, MOVE_NAMES
from dsp_gym.envs.capacity import CAPACITY_FEATURES, KAPPAS
from dsp_gym.envs.observation import JOB_FEATURES, VERTEX_FEATURES
from dsp_gym.envs.reward import TERM_TABLE, RewardWeights
from dsp_gym.evaluation.scorecard import EPISODE_METRICS
from dsp_gym.loop.documents import MEANINGS
from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX
from generator.markdown import page, table

UNTYPED = {
    "t_s": "seconds on the collector's clock",
    "status": "RUNNING, SAVEPOINTING, RESTARTING or FAILED",
    "parallelism": "subtasks observed running",
    "memory_level": "memory level observed running; -1: no managed memory",
}
"""What the wire schema carries outside `metrics`, so that `MEANINGS` does not describe it."""


def observation() -> str:
    """Features of the flat observation."""
    per_vertex = table(
        ["#", "feature", "unit", "meaning"],
        [[i, f"`{f.name}`", f.unit, f.about] for i, f in enumerate(VERTEX_FEATURES.values())],
    )
    per_job = table(
        ["#", "feature", "unit", "meaning"],
        [[i, f"`{f.name}`", f.unit, f.about] for i, f in enumerate(JOB_FEATURES.values())],
    )
    capacity = table(
        ["#", "feature", "unit", "meaning"],
        [[i, f"`{f.name}`", f.unit, f.about] for i, f in enumerate(CAPACITY_FEATURES.values())],
    )
    return page(
        "Observation features",
        "All features of the flat vector, in order; see "
        "[Observation](../environments/observation.md) for the layout. Where the unit is log2 or "
        "log10, the feature is that logarithm of the quantity named.",
        f"## Per vertex\n\n{per_vertex}",
        f"## Per job\n\n{per_job}",
        "## Of capacity actions\n\nThe whole observation if `env.action` is `capacity`; see "
        f"[Capacity actions](../concepts/capacity.md).\n\n{capacity}",
    )


def action_and_reward() -> str:
    """Moves and reward terms."""
    moves = table(["index", "parallelism"], enumerate(MOVE_NAMES))
    memory = table(["index", "memory level"], enumerate(MEMORY_NAMES))
    terms = table(
        ["term", "unit", "default weight", "meaning before weighting"],
        [
            [f"`{n}`", TERM_TABLE[n].unit, field.default, field.description]
            for n, field in RewardWeights.model_fields.items()
        ],
    )
    multiples = table(
        ["index", "capacity"],
        [[0, "hold"], *([1 + i, f"{k:g} x the present load"] for i, k in enumerate(KAPPAS))],
    )
    return page(
        "Moves and reward terms",
        "See [Action](../environments/action.md) and [Reward](../environments/reward.md).",
        f"## Moves of parallelism\n\n{moves}",
        f"## Moves of memory\n\n{memory}",
        f"## Capacity actions\n\nSee [Capacity actions](../concepts/capacity.md).\n\n{multiples}",
        f"## Reward terms\n\n{terms}",
    )


def metrics() -> str:
    """Fields of a snapshot."""
    about = UNTYPED | MEANINGS
    per_job = table(["metric", "meaning"], [[f"`{n}`", about[n]] for n in PER_JOB])
    per_vertex = table(["metric", "meaning"], [[f"`{n}`", about[n]] for n in PER_VERTEX])
    return page(
        "Metrics of a snapshot",
        "Fields of `MetricsSnapshot`. Names end in the unit: `_s` seconds, `_ms` milliseconds, "
        "`_mib` MiB, `_per_s` per second, `_ms_per_s` milliseconds per second. Unknown is NaN in "
        "arrays, `null` in JSON and `None` in the view of one job.",
        f"## Per job\n\n{per_job}",
        f"## Per vertex\n\n{per_vertex}",
    )


def scorecard() -> str:
    """Columns of a scorecard."""
    return page(
        "Scorecard columns",
        "Measured per episode: one policy, job, load and seed. Lower values are better for "
        "every metric; a higher share of the possible saving, which a report adds, is better. See "
        "[Evaluation](../concepts/evaluation.md).",
        table(
            ["name", "meaning"], [[f"`{name}`", about] for name, about in EPISODE_METRICS.items()]
        ),
    )
