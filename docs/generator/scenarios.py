"""One page per environment in Gymnasium's form: spaces, rewards, start, end, versions."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from statistics import median

from dsp_gym.envs.action import LOGITS, MEMORY_MOVES, MOVES
from dsp_gym.envs.capacity import CAPACITY_FEATURES, KAPPAS
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.info import LISTED_KEYS
from dsp_gym.envs.keywords import EnvKeywords
from dsp_gym.envs.observation import ObservationLayout
from dsp_gym.envs.registration import CAPACITY_IDS, FROM_CONFIG, IDS, NAMESPACE, changes
from dsp_gym.envs.reward import RewardWeights
from dsp_gym.envs.scenarios import DEFAULT_LOADS
from dsp_gym.envs.single import AutoscaleEnv, action_space, observation_space
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.studies.bench.sync import BAR, YARDSTICK
from generator.markdown import page, plain, table

FIGURES = Path(__file__).resolve().parents[1] / "figures"

INFO = {
    "action_mask": "valid moves, also after a reset",
    "cost": "money requested in the interval",
    "slo_s": "seconds of the interval beyond the SLO, down included",
    "interventions": "a record for each change by a guardrail: guardrail, kind, by, reason",
    "reward_terms": "the terms before weighting, by name",
    "down_s": "seconds of the interval without processing",
    "pending_s": "backlog at its end, in seconds of arrivals",
    "trips": "which guardrails of the chain stepped in",
    "enacted": "whether the decision reached the job",
    "reward_source": "`outcome`, the simulation's truth, or `metrics`",
}
"""What a step reports beside observation and reward."""


def scenarios() -> dict[str, str]:
    """Path below docs/ and content of the list of environments and of one page for each."""
    pages = {"environments/index.md": environments()}
    for name, job in IDS.items():
        pages[f"environments/{file_of(name)}"] = scenario(name, load_job(job))
    pages[f"environments/{file_of(FROM_CONFIG)}"] = from_config()
    for name, job in CAPACITY_IDS.items():
        pages[f"environments/{file_of(name)}"] = with_capacity(name, job)
    return pages


def file_of(name: str) -> str:
    """The file of an environment's page: `dsp_gym/Nexmark-Q11-v1` has `nexmark-q11.md`."""
    return re.sub(r"^\w+/|-v\d+$", "", name).lower() + ".md"


def environments() -> str:
    """Registered ids and the sizes of their spaces."""
    rows = []
    for name, job in IDS.items():
        spec = load_job(job)
        count = len(spec.vertices)
        size = ObservationLayout(count).size
        shape = [count, size, 2 * count, count * LOGITS]
        rows.append([f"[`{name}`]({file_of(name)})", f"`{job}`", *shape])
    link = f"[`{FROM_CONFIG}`]({file_of(FROM_CONFIG)})"
    rows.append([link, "`config=` an experiment, or `job=`", "", "", "", ""])
    head = ["id", "job", "vertices", "observation", "action", "action mask"]
    return page(
        "Environments",
        "`gymnasium.make(id)` gives one job, `gymnasium.make_vec(id, num_envs=n)` a batch that one "
        "compiled call advances. Write an id with its module, `dsp_gym:dsp_gym/Nexmark-Q11-v1`: "
        "Gymnasium then imports the module wherever it makes an environment. A plain id needs "
        "`import dsp_gym` in that very process; in a worker process without it, such as those of "
        "Stable-Baselines3's `SubprocVecEnv`, Gymnasium says `Namespace dsp_gym not found`.",
        "The last three columns are lengths: of the flat observation, of the MultiDiscrete action, "
        "and of the mask over all moves. `dsp-gym list envs` lists the ids.",
        table(head, rows),
        "## Batches and their ends\n\n`make_vec(..., autoreset_mode=)` takes Gymnasium's "
        '`"SameStep"` (the default: `info["final_obs"]` and `info["final_info"]` are of the old '
        'episode), `"NextStep"` and `"Disabled"` (then `reset(options={"reset_mask": ended})` '
        "comes before the next step). Gymnasium's wrappers of observations take the last two. "
        "`call`, `get_attr` and `set_attr` reach single environments. Gymnasium's own "
        "`SyncVectorEnv` has the keys of `info` that are listed, or those of `info_keys`. In "
        "worker processes an id with its module is found: `dsp_gym:dsp_gym/Nexmark-Q11-v1`.",
        speed(),
        "## With capacity actions\n\nThe same scenarios with one "
        "[choice for the whole job](../concepts/capacity.md) per decision: "
        + ", ".join(f"[`{name}`]({file_of(name)})" for name in CAPACITY_IDS)
        + ".",
        "All environments above share one [observation](observation.md), one [action](action.md) "
        "and one [reward](reward.md); they differ in the job and in what you set.",
    )


def scenario(name: str, spec: JobSpec) -> str:
    """The page of one registered job."""
    count = len(spec.vertices)
    return page(
        name,
        example(name),
        f"## Description\n\n{description(spec)}",
        f"## Action space\n\n`{action_space(count)}`\n\n{actions([v.name for v in spec.vertices])}",
        f"## Observation space\n\n`{observation_space(ObservationLayout(count).size)}`\n\n"
        + observations(ObservationLayout(count)),
        *returns(spec),
        *common(spec),
    )


def from_config() -> str:
    """The page of the environment built from a configuration."""
    return page(
        FROM_CONFIG,
        example(FROM_CONFIG, ', config="q11-quickstart"'),
        "## Description\n\nAny job under any load: `config` names an "
        "[experiment](../reference/experiments.md) or a file of your own, `job` a "
        "[shipped job](../reference/jobs.md) or a [job file](../guides/add-a-workload.md). Pass "
        "one or both; `job` wins over the jobs of the experiment. Of an experiment with several "
        "jobs `gymnasium.make` takes the first; environment i of `gymnasium.make_vec` takes job i "
        "modulo their number.",
        "## Action space\n\n`MultiDiscrete([7 3] * V)` for a job of V vertices, padded to the "
        "largest job of a batch. See [Action](action.md).",
        "## Observation space\n\n`Box(-10.0, 10.0, (n,), float32)`, n as in "
        "[Observation](observation.md).",
        *common(None),
    )


def with_capacity(name: str, job: str | None) -> str:
    """The page of a scenario with capacity actions."""
    spec = None if job is None else load_job(job)
    rows = [[0, "hold"]]
    rows += [[1 + i, f"carry {kappa:g} times the present load"] for i, kappa in enumerate(KAPPAS)]
    said = "Any job under any load, as in [Autoscale](autoscale.md)." if spec is None else ""
    return page(
        name,
        example(name, ', config="q11-quickstart"' if spec is None else ""),
        f"## Description\n\n{said if spec is None else description(spec)}",
        f"## Action space\n\n`Discrete({1 + len(KAPPAS)})`: one choice for the whole job, see "
        f"[Capacity actions](../concepts/capacity.md).\n\n{table(['#', 'meaning'], rows)}",
        f"## Observation space\n\n`{observation_space(len(CAPACITY_FEATURES))}`\n\n[Features of "
        "the job](../reference/observation.md#of-capacity-actions), whatever its graph.",
        *common(spec, capacity=True),
    )


def example(name: str, arguments: str = "") -> str:
    """A program that makes the environment and takes one step."""
    return (
        "```python\nimport gymnasium\n\n"
        f'env = gymnasium.make("{NAMESPACE}:{name}"{arguments})\n'
        "observation, info = env.reset(seed=0)\n"
        "action = env.action_space.sample()\n"
        "observation, reward, terminated, truncated, info = env.step(action)\n```"
    )


def description(spec: JobSpec) -> str:
    """The job, its graph and its limits."""
    tables = [
        [
            f"`{vertex.name}`",
            vertex.kind,
            ", ".join(f"`{edge.from_}` ({edge.ship})" for edge in vertex.inputs) or "–",
            "yes" if vertex.state is not None else "no",
            "yes" if vertex.scalable and vertex.kind != "source" else "no",
        ]
        for vertex in spec.vertices
    ]
    memory = ", ".join(f"{spec.memory.base_mib * 2**x:g}" for x in range(spec.memory.levels))
    return (
        f"{spec.description}\n\n"
        f"{table(['vertex', 'kind', 'reads from', 'keyed state', 'can be scaled'], tables)}\n\n"
        f"Reference rate {spec.source.rate_per_s:,.0f} records/s, latency bound "
        f"{spec.slo.latency_s:g} s, memory levels of {memory} MiB per subtask, at most "
        f"{spec.max_parallelism_per_vertex} subtasks per vertex. The numbers and their sources are "
        f"in `configs/jobs/{spec.job}.yaml`."
    )


def actions(vertices: list[str]) -> str:
    """What each number of an action moves."""
    rows = []
    for i, name in enumerate(vertices):
        rows.append([2 * i, f"parallelism of `{name}`", f"0 to {MOVES - 1}"])
        rows.append([2 * i + 1, f"memory level of `{name}`", f"0 to {MEMORY_MOVES - 1}"])
    return (
        f"{table(['#', 'moves', 'values'], rows)}\n\n[The moves](../reference/action-and-reward.md"
        "#moves-of-parallelism) and [their masks](action.md#masks): `info['action_mask']` has "
        f"{len(vertices) * LOGITS} entries."
    )


def observations(layout: ObservationLayout) -> str:
    """Which part of the flat vector holds what."""
    features = "../reference/observation.md"
    rows = [
        [span(layout.vertex), f"[features per vertex]({features}#per-vertex), vertex by vertex"],
        [span(layout.job), f"[features of the job]({features}#per-job)"],
        [span(layout.mask), "1 for a vertex, 0 for padding"],
        [span(layout.adjacency), "adjacency: row = downstream, column = upstream"],
    ]
    return table(["entries", "hold"], rows)


def span(part: slice) -> str:
    """First and last entry of a slice."""
    return f"{part.start} to {part.stop - 1}"


def common(spec: JobSpec | None, *, capacity: bool = False) -> list[str]:
    """The sections that every environment shares."""
    env = EnvConfig()
    weights = RewardWeights()
    formula = " + ".join(f"{getattr(weights, n):g} · {n}" for n in RewardWeights.model_fields)
    terms = [
        [f"`{n}`", field.default, field.description]
        for n, field in RewardWeights.model_fields.items()
    ]
    job = None if spec is None else spec.job
    told = changes(job, capacity=capacity)
    versions = [[f"`{version}`", what] for version, what in told.items()]
    train = DEFAULT_LOADS["train"]
    load = (
        f"Episodes draw their load from `{train['loads'][0]}`, seeds {train['seeds']['from']} to "
        f"{train['seeds']['to'] - 1} of the split `train`; `split` takes another part."
    )
    return [
        f"## Rewards\n\n`reward = −({formula})` per decision, from what happened in the interval "
        f"([more](reward.md)):\n\n{table(['term', 'weight', 'before weighting'], terms)}",
        "## Starting state\n\n"
        "The smallest configuration that carries the load's first rate at "
        f"{env.start_headroom:.0%} utilisation, at the memory level of the job file. `env.start` "
        "of an experiment takes the job file's configuration or a random one instead. "
        + (load if spec is not None else "The experiment names the loads and their seeds.")
        + " The same seed gives the same episode.",
        "## Episode end\n\n"
        f"- Truncation after {env.episode_s:,} s, which is {env.episode_s // env.interval_s} "
        f"decisions of {env.interval_s} s.\n"
        f"- Termination when the backlog exceeds {env.give_up_backlog_s:,.0f} s of arrivals: the "
        "job cannot recover.",
        "## Information\n\n`info` of a step has these keys; the batched environment has the same, "
        "each as an array with a row per job. Of a simulated job those that are not listed are "
        'found by name, `info["reward_terms"]`, but are no items of `info`, so a copy of it and '
        'Gymnasium\'s vector environments have them only with `info_keys="all"`.\n\n'
        f"{table(['key', 'holds', 'listed'], information())}",
        f"## Arguments\n\n{arguments()}",
        "## Versions\n\nA version is raised whenever the same seed would give another trajectory."
        f"\n\n{table(['version', 'change'], versions)}",
    ]


def information() -> list[list[str]]:
    """Keys of a step's info, what each holds, and whether it is listed."""
    listed = dict.fromkeys(LISTED_KEYS, "yes") | {"interventions": "with guardrails"}
    return [[f"`{key}`", holds, listed.get(key, "")] for key, holds in INFO.items()]


def speed() -> str:
    """What a step costs alone, and in vector environments."""
    kept = json.loads((FIGURES / "sync.json").read_text("utf-8"))
    times, machine, envs = kept["times"], kept["machine"], kept["envs"]
    yardstick = next(one["sync_us"] for one in times if one["env"] == YARDSTICK)
    rows = []
    for one in times:
        told = ", ".join(f"`{name}={value!r}`" for name, value in one["keywords"].items())
        rows.append(
            [
                " ".join(filter(None, (f"`{one['env']}`", told))),
                f"{one['one_us']:.0f}",
                f"{one['sync_us']:.0f}",
                f"{one['sync_us'] / one['one_us']:.2f}",
                f"{one['sync_us'] / yardstick:.1f}",
                f"{one['vec_us']:.0f}",
            ]
        )
    head = ["environment", "alone", "`SyncVectorEnv`", "ratio", f"x `{YARDSTICK}`", "`make_vec`"]
    return (
        "## Speed\n\n"
        f"Microseconds per decision: of one environment alone, of each in Gymnasium's "
        f"`SyncVectorEnv` of {envs}, and of each in `gymnasium.make_vec` of {envs}. The ratio is "
        f"`SyncVectorEnv` over alone, wanted is at most {BAR:g}; then follows `SyncVectorEnv` over "
        f"`{YARDSTICK}` in it. Gymnasium {kept['gymnasium']}, Python {machine['python']}, "
        f"{machine['cores']} cores of {machine['processor']}; lowest times of many turns.\n\n"
        f"{table(head, rows)}\n\n"
        "`SyncVectorEnv` copies every listed key of `info` of every environment at every step. "
        "`python -m dsp_gym.studies.bench.sync` repeats the measurement in a few minutes."
    )


def returns(spec: JobSpec) -> list[str]:
    """Rules beside agents of a short training, where they were played on the job."""
    file = FIGURES / f"{spec.job.removeprefix('nexmark-')}-short.json"
    if not file.is_file():
        return []
    kept = json.loads(file.read_text("utf-8"))
    found, agents = kept["returns"], range(kept["agents"])
    trained = sorted(found[f"trained {seed}"] for seed in agents)
    untrained = [found[f"untrained {seed}"] for seed in agents]
    rows = [(f"`{name}`", f"{found[name]:.1f}") for name in ("ds2", "justin-artifact")]
    rows = [("`hold`: no action", f"{found['hold']:.1f}"), *rows]
    rows += [
        (f"{len(agents)} untrained networks, best", f"{max(untrained):.1f}"),
        (
            f"the same after {kept['decisions']:,} decisions, worst to best (median)",
            f"{trained[0]:.1f} to {trained[-1]:.1f} ({median(trained):.1f})",
        ),
    ]
    return [
        "## Returns\n\n"
        f"Mean returns of {kept['episodes']} episodes of the split `test`, the same for all. The "
        "agents were trained by PPO with every default of an experiment, nothing set but the "
        f"number of decisions; {kept['better']} of {len(agents)} beat their untrained network, "
        f"holding and DS2:\n\n{table(['policy', 'return'], rows)}\n\n"
        "`python -m agents.studies.short_training` repeats it in some minutes; "
        "[other policies and agents](../guides/rules-beside-an-agent.md)."
    ]


def arguments() -> str:
    """Keyword arguments of `gymnasium.make`, from the docstring of the environment."""
    text = inspect.getdoc(AutoscaleEnv) or ""
    said = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    entries = re.findall(
        r"^    (\w+): (.*?)(?=^    \w|\Z)", said[1] if said else "", re.DOTALL | re.MULTILINE
    )
    signature = inspect.signature(AutoscaleEnv).parameters
    # What changes a scenario is collected by the environment, and is None unless given.
    defaults = {name: one.default for name, one in signature.items()} | dict.fromkeys(
        EnvKeywords.__annotations__
    )
    rows = [[f"`{name}`", f"`{defaults[name]!r}`", plain(about)] for name, about in entries]
    return table(["argument", "default", "meaning"], rows)
