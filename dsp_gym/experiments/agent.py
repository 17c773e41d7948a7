"""The section `agent` of an experiment: how it learns, from what, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from dsp_gym.config.model import ConfigModel, refuse_repeated
from dsp_gym.loads.splits import SplitName
from dsp_gym.loads.template import DRAWS, DrawnLoad
from dsp_gym.policies.algorithms import ALGORITHMS, Algorithm, find_algorithm

MOST_LAWS = 64
"""Laws of the load that a policy may hold: their counts take 3 MB each while it is read."""

UPDATES = 50
"""Updates that a training has at least where it chooses its own number of jobs."""


def _different(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds) or any(not 0 <= seed < 2**31 for seed in seeds):
        raise ValueError(f"seeds are different and 0 to 2^31 - 1, found {list(seeds)}")
    return seeds


Seeds = Annotated[tuple[int, ...], AfterValidator(_different)]


class NetworkConfig(ConfigModel):
    """The network of an agent."""

    encoder: Literal["graph", "mlp"] = Field(
        "graph",
        description="graph: one encoder shared by all vertices and messages along the edges, acts "
        "on jobs of any shape; mlp: plain, three times faster, bound to the number of vertices it "
        "was trained with",
    )
    hidden: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(
        (64, 64),
        min_length=1,
        max_length=4,
        description="widths of the hidden layers; graph: the first is the width of a vertex's "
        "embedding, the last that of the heads. 64 learns the Nexmark jobs in minutes on 2 cores",
    )
    rounds: int = Field(
        2,
        ge=0,
        le=8,
        description="rounds of message passing (graph); 2 lets a vertex see its neighbours' "
        "neighbours, enough for the Nexmark jobs",
    )
    hold_bias: float = Field(
        4.0,
        ge=0,
        le=10,
        description="logit of holding above every other move in a fresh agent; each move costs an "
        "outage, so an agent that begins by moving at random sees nothing but outages",
    )
    activation: Literal["tanh", "relu"] = Field(
        "tanh", description="nonlinearity; tanh is the usual choice for PPO on vectors"
    )


class FromDataset(ConfigModel):
    """Which transitions of a dataset are learned from."""

    dataset: str | None = Field(
        None, min_length=1, description="folder of a dataset that `dsp-gym dataset build` made"
    )
    split: SplitName = Field("train", description="part of the dataset")
    policies: tuple[str, ...] = Field(
        ("*",),
        min_length=1,
        description="policies whose decisions are taken, as globs; all by default",
    )


class WarmStartConfig(FromDataset):
    """Behaviour cloning of a teacher, or of a dataset, before the agent learns for itself."""

    teacher: str | None = Field(
        None,
        min_length=1,
        description="the policy to imitate: a name, or a file in configs/policies; either this or "
        "dataset",
    )
    decisions: int = Field(
        65_536,
        ge=256,
        description="decisions of the teacher to learn from, one per job and step; of a dataset: "
        "all there are",
    )
    min_propensity: float = Field(
        0.5,
        ge=0,
        le=1,
        description="decisions of a dataset that were less probable are not imitated: rare "
        "explorations; a decision of unknown probability is imitated",
    )
    epochs: int = Field(
        10, ge=1, le=1000, description="passes over them; the loss is flat after about ten"
    )
    batch_size: int = Field(2048, ge=1, description="decisions per gradient step")
    learning_rate: float = Field(1e-3, gt=0, description="Adam's, during the imitation only")
    schedule: Literal["constant", "linear"] = Field(
        "constant", description="of the learning rate; linear goes to 0 with the last epoch"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> WarmStartConfig:
        if (self.teacher is None) == (self.dataset is None):
            raise ValueError("give either a teacher or a dataset to imitate")
        return self


class OfflineConfig(FromDataset):
    """Learning from a dataset better than its policies decide: advantage-weighted regression."""

    dataset: str = Field(
        min_length=1, description="folder of a dataset that `dsp-gym dataset build` made"
    )
    epochs: int = Field(10, ge=1, le=1000, description="passes over it")
    batch_size: int = Field(2048, ge=1, description="decisions per gradient step")
    learning_rate: float = Field(1e-3, gt=0, description="Adam's, offline only")
    temperature: float = Field(
        0.5,
        gt=0,
        description="of the weights, in standard deviations of the advantage; towards 0 only the "
        "best decisions count, large values imitate all alike",
    )
    expectile: float = Field(
        0.7,
        gt=0,
        lt=1,
        description="expectile that the critic learns; 0.5: the policies' mean, towards 1 their "
        "best (IQL takes 0.7 to 0.9)",
    )


class CurriculumConfig(ConfigModel):
    """Which jobs episodes take: more of those on which the agent is far from the best plan."""

    by_gap: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="share of the episodes whose job is drawn by its gap: the agent's price above "
        "the best plan's, as a share of it, in the last evaluation; the rest take all jobs alike",
    )


_CONTINUOUS = "acts on continuous actions, and these are discrete."

UNFIT = {
    **dict.fromkeys(("sac", "td3", "ddpg", "tqc", "crossq"), _CONTINUOUS),
    "ars": "has no gradient to learn a batch by.",
    "planning": "is named by agent.kind.",
}
"""Algorithms of Stable-Baselines3 and sb3-contrib that an experiment cannot take, and why."""


class AgentConfig(ConfigModel):
    """How the agent learns. Names as in Stable-Baselines3."""

    kind: Literal["ppo"] = Field(
        "ppo", description="ppo: a network that learns by acting; planning: see PlanningConfig"
    )
    algorithm: str = Field(
        "maskable-ppo",
        description="maskable-ppo never tries a move that bounds forbid, which saves it learning "
        "them; the others leave them to the environment. a2c, trpo, dqn, qr-dqn and recurrent-ppo "
        "are those of Stable-Baselines3 and sb3-contrib with plain layers over the whole "
        "observation; dqn and qr-dqn make one move of one vertex per decision, or a capacity "
        "action; recurrent-ppo has an LSTM before its layers, lstm_hidden_size wide. Distributions "
        "add others in the entry points `dsp_gym.algorithms`",
    )
    params: dict[str, object] = Field(
        default_factory=dict,
        description="of every algorithm but ppo and maskable-ppo: further arguments of the "
        "algorithm, under its own names",
    )
    learner: Literal["native", "sb3"] = Field(
        "native",
        description="native: this project's PPO, the same update on all cores (`dsp-gym bench env` "
        "compares their speed); sb3: Stable-Baselines3's, for comparison; of ppo and maskable-ppo",
    )
    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        exclude_if=lambda value: value == "cpu",
        description="cuda: environments, network and updates on one NVIDIA GPU, of the learner "
        "native; needs the extra `gpu`",
    )
    network: NetworkConfig = Field(default_factory=NetworkConfig, description="the network")
    n_envs: int = Field(
        512,
        ge=1,
        description="jobs stepped together; hundreds, so that the batch fills the cores. Where it "
        "is not given a short training has fewer, at least 16 and one per job, and so fifty "
        "updates where its jobs allow it",
    )
    n_steps: int = Field(
        32, ge=1, description="decisions per job between updates; half an hour at 60 s"
    )
    batch_size: int = Field(
        8192,
        ge=1,
        description="decisions per gradient step; large because updates are the ceiling. Where it "
        "is not given, at most a quarter of a short training's rollout",
    )
    n_epochs: int = Field(4, ge=1, description="passes over each rollout")
    learning_rate: float = Field(1e-3, gt=0, description="Adam's, at the start; high for the batch")
    schedule: Literal["constant", "linear"] = Field(
        "linear", description="of the learning rate; linear goes to 0 at total_steps"
    )
    gamma: float = Field(
        0.97,
        gt=0,
        lt=1,
        description="discount per decision; 0.97 looks half an hour ahead at 60 s, longer than any "
        "outage and catch-up",
    )
    gae_lambda: float = Field(0.95, ge=0, le=1, description="bias against variance of advantages")
    clip_range: float = Field(0.2, gt=0, description="PPO's limit on the change of a probability")
    target_kl: float | None = Field(
        None,
        gt=0,
        description="an update ends early once the policy has left the one that decided by half as "
        "much again (mean divergence of a minibatch); none: all passes are made",
    )
    ent_coef: float = Field(
        0.002, ge=0, description="weight of the entropy; small, it is summed over all vertices"
    )
    vf_coef: float = Field(0.5, ge=0, description="weight of the critic's loss")
    max_grad_norm: float = Field(0.5, gt=0, description="limit on the gradient's norm")
    total_steps: int = Field(
        2_000_000,
        ge=0,
        description="decisions to learn from, over all jobs, per seed; 0: imitation and dataset "
        "alone",
    )
    seeds: Seeds = Field(
        (0,), min_length=1, description="one agent is trained per seed, the best is exported"
    )
    ensemble: bool = Field(
        False,
        description="capacity actions: all seeds are exported as one policy, which decides by the "
        "mean of their probabilities and is outside its training where they disagree",
    )
    warm_start: WarmStartConfig | None = Field(
        None, description="imitate a teacher or a dataset first; none: learn from scratch"
    )
    offline: OfflineConfig | None = Field(
        None, description="then learn from a dataset, before the first own step; none: do not"
    )
    curriculum: CurriculumConfig | None = Field(
        None,
        description="of env.randomise.job: jobs that the agent is bad at are drawn more often; "
        "none: all alike",
    )
    checkpoint_every: int = Field(
        500_000, ge=1, description="decisions between checkpoints; about a minute on 2 cores"
    )
    eval_every: int | None = Field(
        None,
        ge=1,
        description="decisions between evaluations on the validation loads; none: a tenth of "
        "total_steps, at most 250,000",
    )
    eval_episodes: int = Field(
        64, ge=1, description="episodes of such an evaluation; the best agent is chosen by them"
    )
    act_above: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        (0.02, 0.05, 0.1, 0.2, 0.4),
        min_length=1,
        description="capacity actions: probabilities of acting above which a deployed agent acts, "
        "each tried on the validation loads; the best is kept with the policy",
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="cores that updates run on; the agent does not depend on them. None: native: "
        "all, at most 4; sb3: 1, as torch's threads collapse when anything else runs",
    )

    @property
    def evaluated_every(self) -> int:
        """Decisions between evaluations: a short training is looked at as often as a long one."""
        if self.eval_every is not None:
            return self.eval_every
        return min(250_000, max(1, self.total_steps // 10))

    @property
    def needs(self) -> Algorithm:
        """What the algorithm learns with."""
        return find_algorithm(self.algorithm)

    @field_validator("algorithm")
    @classmethod
    def _check_algorithm(cls, algorithm: str) -> str:
        known = [name for name in ALGORITHMS if name not in UNFIT]
        if algorithm in known:
            return algorithm
        why = UNFIT.get(algorithm.lower(), "is no algorithm there is.")
        raise ValueError(f"'{algorithm}' {why} These fit: {', '.join(known)}.")

    @model_validator(mode="before")
    @classmethod
    def _fit_rollout(cls, given: object) -> object:
        return fit_rollout(given)

    @model_validator(mode="after")
    def _check(self) -> AgentConfig:
        if not self.needs.plain_layers:
            if self.params:
                raise ValueError(f"params are not of {self.algorithm}; its keys are beside it")
        elif self.network.encoder != "mlp":
            raise ValueError(f"{self.algorithm} has plain layers; set network.encoder: mlp")
        elif self.warm_start is not None or self.offline is not None:
            raise ValueError(
                f"{self.algorithm} learns from its own steps alone; leave warm_start and offline "
                "out, or take ppo or maskable-ppo"
            )
        self._check_device()
        rollout = self.n_envs * self.n_steps
        if self.needs.minibatches and self.batch_size > rollout:
            raise ValueError(
                f"batch_size is {self.batch_size}, but a rollout has only n_envs * n_steps = "
                f"{rollout} decisions"
            )
        return self

    def _check_device(self) -> None:
        """Refuse what learns on the CPU alone."""
        if self.device == "cpu":
            return
        if self.needs.plain_layers or self.learner != "native":
            what = self.algorithm if self.needs.plain_layers else f"learner: {self.learner}"
            raise ValueError(
                f"{what} learns on the CPU; leave device out, or take ppo or maskable-ppo with "
                "learner: native"
            )
        if self.curriculum is not None:
            raise ValueError(
                "a curriculum chooses the jobs of the next episodes, and on a GPU these are drawn "
                "ahead; leave curriculum out, or device"
            )


def fit_rollout(given: object, jobs: int = 1) -> object:
    """Give a short training smaller rollouts: with four updates it would learn nothing.

    Args:
        given: The section `agent`, as it is written.
        jobs: Jobs that the training needs a row for each.

    Returns:
        The section with the number of rows and a batch size that fit; as it is where it names the
        number, or the training is long.
    """
    if not isinstance(given, Mapping):
        return given
    whole, steps = given.get("total_steps"), given.get("n_steps", 32)
    if not (isinstance(whole, int) and isinstance(steps, int) and whole > 0 and steps > 0):
        return given
    fitted = dict(given)
    if "n_envs" not in given and whole < 512 * UPDATES * steps:
        fitted["n_envs"] = rows = max(16, jobs, whole // (UPDATES * steps))
        fitted.setdefault("batch_size", min(8192, max(1, rows * steps // 4)))
    return fitted


class HistoryConfig(ConfigModel):
    """What a job has done so far, to plan with."""

    dataset: str = Field(
        min_length=1,
        description="folder of a dataset that `dsp-gym dataset build` made with `snapshots` among "
        "its tables",
    )
    weight: float = Field(
        10.0,
        gt=0,
        description="what a minute of it counts for against a minute of the training loads",
    )


class LawConfig(ConfigModel):
    """A law of the load: a form whose parameters are drawn for every load that is counted."""

    name: str = Field(
        min_length=1, pattern=r"^[A-Za-z0-9._-]+$", description="name in the policy's folder"
    )
    load: DrawnLoad = Field(description=f"the load; {DRAWS} for every load that is counted")


class PlanningConfig(ConfigModel):
    """How planning learns: what loads do next, and the price of a late minute."""

    kind: Literal["planning"] = Field(description="planning: the policy `mdp`, by value iteration")
    late_target: float = Field(
        0.02,
        gt=0,
        lt=1,
        description="share of the time that jobs may be late on the validation loads: the lowest "
        "price of a late minute that keeps to it is taken",
    )
    late_prices: tuple[float, ...] = Field(
        (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 9.0, 14.0),
        min_length=1,
        description="prices of a late minute to choose from, rising, in minutes of the "
        "configuration that carries the reference rate; found by halving, so nine take four "
        "runs at most",
    )
    draws: int = Field(
        60,
        ge=0,
        description="draws of each training load, or of each law, whose minutes are counted, other "
        "ones for each seed; more change no figure by more than its spread. 0: the history alone",
    )
    laws: tuple[LawConfig, ...] = Field(
        (),
        max_length=MOST_LAWS,
        description="laws of the load, counted apart in place of the training loads, whose "
        "load_scale does not touch them: a running job's own minutes tell the policy which of them "
        "it follows; none: the training loads are counted as one law",
    )
    history: HistoryConfig | None = Field(
        None,
        description="the jobs' own past: how their loads develop, and how fast their vertices are",
    )
    params: dict[str, object] = Field(
        default_factory=dict, description="further parameters of the policy `mdp`"
    )
    seeds: Seeds = Field(
        (0,), min_length=1, description="one policy is trained per seed, the best is exported"
    )
    eval_episodes: int = Field(
        24, ge=1, description="episodes on the validation loads that a price is tried on"
    )

    @property
    def algorithm(self) -> str:
        """The algorithm of this kind of agent."""
        return self.kind

    @property
    def total_steps(self) -> int:
        """Prices that are tried at most."""
        return len(self.late_prices).bit_length()

    @property
    def checkpoint_every(self) -> int:
        """Prices between checkpoints."""
        return 1

    @model_validator(mode="after")
    def _check(self) -> PlanningConfig:
        prices = self.late_prices
        if prices[0] <= 0 or any(b <= a for a, b in pairwise(prices)):
            raise ValueError(f"late_prices are above 0 and rise, found {list(prices)}")
        if not self.draws and self.history is None:
            raise ValueError("with no draws and no history there is nothing to learn from")
        refuse_repeated([law.name for law in self.laws], "the law '{}' is listed twice")
        if taken := sorted({"late_price", "path", "transitions"} & self.params.keys()):
            raise ValueError(f"'{taken[0]}' is what training finds; leave it out of params")
        return self


def _kind(value: object) -> str:
    given = value.get("kind", "ppo") if isinstance(value, dict) else getattr(value, "kind", "ppo")
    return str(given)


AnyAgent = Annotated[
    Annotated[AgentConfig, Tag("ppo")] | Annotated[PlanningConfig, Tag("planning")],
    Discriminator(
        _kind,
        custom_error_type="agent_kind",
        custom_error_message="kind is 'ppo' or 'planning'",
    ),
]
"""The section `agent`, by its `kind`."""
