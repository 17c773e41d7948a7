from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.cli import app
from dsp_gym.config import names
from dsp_gym.config.files import load_model, parse
from dsp_gym.datasets.rollouts.exploration import RandomCapacities, RandomMoves
from dsp_gym.datasets.rollouts.format import MANIFEST, RolloutManifest, cell_file, cell_schema
from dsp_gym.datasets.rollouts.plan import RolloutConfig, cells_of, decisions_of, players_of
from dsp_gym.datasets.rollouts.run import rollout
from dsp_gym.engine import LocalEngine
from dsp_gym.envs import action
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.capacity import CapacityCodec
from dsp_gym.envs.config import CapacityConfig
from dsp_gym.envs.reward import TERMS
from dsp_gym.errors import ConfigError, SchemaError
from dsp_gym.guardrails.chain import build_for
from dsp_gym.job.catalog import load_job
from dsp_gym.loads.sampler import LoadSampler
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.registry import make
from tests.simulating import begun

SMALL = {
    "policies": ["ds2", {"policy": "justin-paper", "guardrails": "floor"}],
    "jobs": ["nexmark-q11", "nexmark-q3"],
    "loads": {"train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 2}}},
    "env": {"start": "random", "episode_s": 1200, "randomise": {"service_factor": [0.5, 2]}},
    "epsilon": 0.3,
}


def config(**changes) -> RolloutConfig:
    return parse(RolloutConfig, SMALL | changes, "test")


def rows_of(folder, cell) -> list[dict]:
    return pq.read_table(folder / cell.file).to_pylist()


class InPieces(LocalEngine):
    """This process with batches of one cell, and an end after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.stop_after = stop_after

    @property
    def slots(self) -> int:
        return 1_000_000

    def map(self, do, cells, heard=None, *, patient=False):
        for number, done in enumerate(super().map(do, cells, heard)):
            if number == self.stop_after:
                raise KeyboardInterrupt
            yield done


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rollouts")
    return folder, rollout(config(), folder)


def contents(folder) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_there_is_a_cell_for_every_policy_job_load_and_seed(whole):
    folder, manifest = whole
    assert manifest.complete
    assert Counter((c.policy, c.job) for c in manifest.cells) == Counter(
        {(p, j): 2 for p in ("ds2", "justin-paper") for j in ("nexmark-q11", "nexmark-q3")}
    )
    assert {c.guardrails for c in manifest.cells if c.policy == "justin-paper"} == {"floor"}
    for cell in manifest.cells:
        assert pq.read_schema(folder / cell.file).equals(cell_schema())


def test_a_row_is_a_decision_and_the_last_one_a_snapshot_alone(whole):
    folder, manifest = whole
    for cell in manifest.cells:
        *decided, last = rows_of(folder, cell)
        assert len(decided) + 1 == cell.rows == 21
        assert [row["step"] for row in decided] == list(range(20))
        assert [row["t_s"] for row in decided] == [60.0 * k for k in range(20)]
        assert {row["run"] for row in decided} == {last["run"]} == {cell.run}
        assert [row["truncated"] for row in decided] == [False] * 19 + [True]
        vertices = len(next(job for job in manifest.jobs if job.job == cell.job).vertices)
        assert all(len(row["parallelism"]) == vertices for row in decided)
        assert last["snapshot"]["t_s"] == 1200.0
        undecided = ["propensity", "proposed_parallelism", "parallelism", *TERMS, "truncated"]
        assert {last[name] for name in undecided} == {None}


def test_batches_of_one_give_the_same_bytes_as_one_batch(whole, tmp_path):
    folder, _ = whole
    rollout(config(), tmp_path, engine=InPieces())
    assert contents(tmp_path) == contents(folder)


@pytest.mark.slow
def test_two_processes_write_the_same_bytes_as_one(whole, tmp_path):
    folder, _ = whole
    seen = []
    with LocalEngine(2) as two:
        rollout(config(), tmp_path, engine=two, observer=lambda *told: seen.append(told))
    assert contents(tmp_path) == contents(folder)
    assert seen[-1][1:] == (pytest.approx(8.0), 8)


def test_decisions_are_counted_before_anything_is_played(whole):
    _, manifest = whole
    assert decisions_of(config()) == sum(cell.rows - 1 for cell in manifest.cells)


def test_an_interrupted_run_keeps_its_cells_and_goes_on(whole, tmp_path):
    folder, _ = whole
    with pytest.raises(KeyboardInterrupt):
        rollout(config(), tmp_path, engine=InPieces(stop_after=3))
    begun = RolloutManifest.read(tmp_path)
    assert not begun.complete
    assert len(begun.cells) == 3
    (tmp_path / begun.cells[1].file).write_bytes(b"torn")
    kept = tmp_path / begun.cells[0].file
    before = kept.stat().st_mtime_ns
    seen = []
    rollout(config(), tmp_path, engine=InPieces(), observer=lambda *told: seen.append(told))
    assert kept.stat().st_mtime_ns == before
    assert round(seen[0][1], 6) == 2.05  # two cells are whole, and a first decision was taken
    assert contents(tmp_path) == contents(folder)


def test_a_folder_of_something_else_is_refused_unless_told_otherwise(whole, tmp_path):
    rollout(config(seeds=1), tmp_path)
    with pytest.raises(SchemaError, match=r"config differ.*--overwrite"):
        rollout(config(seeds=1, epsilon=0.0), tmp_path)
    assert rollout(config(seeds=1, epsilon=0.0), tmp_path, overwrite=True).complete


def test_rows_are_what_the_environment_gives(tmp_path):
    """A cell against the same policy in an environment of one, stepped by hand."""
    wanted = config(
        policies=[{"policy": "ds2", "guardrails": "floor"}], jobs=["nexmark-q3"], epsilon=0.0,
        env={"start": "sized", "episode_s": 1800},
    )  # fmt: skip
    manifest = rollout(wanted, tmp_path)
    cell, spec = manifest.cells[1], manifest.jobs[0]
    ((_, load),) = LoadSampler(wanted.loads).cells("train")
    shape = LoadSampler(wanted.loads).rates(load, 1800)
    policy = make("ds2")
    env = AutoscaleBatch(
        [spec], [0], wanted.loads, config=wanted.env, guardrails=build_for(policy, "floor")
    )
    seeds = np.array([cell.simulation_seed])
    begun(env, seeds, shape[None] * spec.source.rate_per_s)
    policy.reset(env.topology, seeds)
    for row in rows_of(tmp_path, cell)[:-1]:
        seen = env.snapshot
        for name in (*PER_JOB, *PER_VERTEX):
            np.testing.assert_array_equal(row["snapshot"][name], getattr(seen, name)[0])
        step = env.enact(policy.decide(seen))
        assert row["proposed_parallelism"] == step.guarded.proposed.parallelism[0].tolist()
        assert row["parallelism"] == step.guarded.parallelism[0].tolist()
        assert row["memory_level"] == step.guarded.memory_level[0].tolist()
        assert [row[name] for name in TERMS] == [step.terms[n][0] for n in TERMS]
        assert row["truncated"] == step.truncated[0]


def test_a_job_that_cannot_recover_ends_its_episode_early(tmp_path):
    manifest = rollout(
        config(
            policies=[{"policy": "static", "params": {"parallelism": 1}}],
            jobs=["nexmark-q3"],
            loads={"train": {"loads": [{"load": {"form": "constant"}}]}},
            env={"start": "job", "episode_s": 3600, "give_up_backlog_s": 60},
            epsilon=0.0,
        ),
        tmp_path,
    )
    (cell,) = manifest.cells
    *decided, _ = rows_of(tmp_path, cell)
    assert cell.end == "terminated"
    assert len(decided) < 60
    assert [row["terminated"] for row in decided[-2:]] == [False, True]
    assert not any(row["truncated"] for row in decided)


def test_without_exploration_every_action_is_certain(tmp_path):
    manifest = rollout(config(seeds=1, epsilon=0.0), tmp_path)
    for cell in manifest.cells:
        assert {row["propensity"] for row in rows_of(tmp_path, cell)[:-1]} == {1.0}


@pytest.mark.slow
def test_propensities_are_the_frequencies_of_actions():
    """20,000 draws in one state, with a policy that doubles: every action as often as told."""
    draws, epsilon = 20_000, 0.4
    one = SimulatedJobs(Topology.of([load_job("nexmark-q3")]))
    one.reset(np.array([5]), np.full((1, 1), 1e6))
    one.advance(300)
    snapshot = one.snapshot().take(np.zeros(draws, np.int64))
    moves, memory = action.targets(snapshot, 0.8)
    decision = ScalingDecision(
        moves[..., action.DOUBLE], memory[..., action.KEEP], ("",) * len(snapshot)
    )
    explore = RandomMoves(epsilon, range(draws), 1, 0.8)
    proposed, propensity = explore(0, snapshot, decision)
    actions = [tuple(a) for a in action.encode(proposed, moves, memory).tolist()]
    told = dict(zip(actions, propensity.tolist(), strict=True))
    assert sum(told.values()) == pytest.approx(1.0)
    for taken, count in Counter(actions).items():
        error = 5 * np.sqrt(told[taken] * (1 - told[taken]) / draws)
        assert count / draws == pytest.approx(told[taken], abs=error)
    assert len(told) > 10


def test_propensities_of_capacities_are_their_frequencies():
    """4,000 draws in one state, with a policy that doubles all tasks: its nearest choice counts."""
    draws, epsilon = 4_000, 0.4
    one = SimulatedJobs(Topology.of([load_job("nexmark-q3")]))
    one.reset(np.array([5]), np.full((1, 1), 1e5))
    codec = CapacityCodec(one.topology.take(np.zeros(draws, np.int64)), CapacityConfig())
    for _ in range(5):
        one.advance(60)
        snapshot = one.snapshot().take(np.zeros(draws, np.int64))
        codec.look(snapshot, np.ones(draws))
    decision = ScalingDecision(
        2 * snapshot.parallelism, snapshot.memory_level, ("",) * len(snapshot)
    )
    explore = RandomCapacities(epsilon, range(draws), 1, codec)
    proposed, propensity = explore(0, snapshot, decision)
    actions = codec.encode(snapshot, proposed)[:, 0].tolist()
    told = dict(zip(actions, propensity.tolist(), strict=True))
    assert set(told) == set(np.flatnonzero(codec.masks(snapshot)[0]).tolist())
    assert sum(told.values()) == pytest.approx(1.0)
    for taken, count in Counter(actions).items():
        error = 5 * np.sqrt(told[taken] * (1 - told[taken]) / draws)
        assert count / draws == pytest.approx(told[taken], abs=error)
    assert len(told) > 3


def test_names_that_would_share_a_file_are_refused():
    wanted = config(policies=[{"policy": "ds2", "name": "a b"}, {"policy": "ds2", "name": "a-b"}])
    assert cell_file("q/l/0/a b") == cell_file("q/l/0/a-b")
    with pytest.raises(ConfigError, match="have one name"):
        cells_of(wanted, players_of(wanted))


@pytest.mark.parametrize("name", names("rollouts"))
def test_shipped_rollouts_can_be_planned(name):
    found = load_model(RolloutConfig, "rollouts", name)
    assert cells_of(found, players_of(found))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ["ds2", "ds2"]}, "two policies are named 'ds2'"),
        ({"policies": ["ds3"]}, "there is no policy 'ds3'"),
        ({"jobs": ["nexmark-q11", "nexmark-q11"]}, "listed twice"),
        ({"split": "test"}, "there is no test split"),
        ({"epsilon": 1.5}, "epsilon"),
    ],
)
def test_bad_configurations_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        players_of(config(**changes))


def test_the_command_writes_a_folder_and_tells_what_is_in_it(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(SMALL | {"seeds": 1}))  # JSON is YAML
    result = CliRunner().invoke(
        app, ["rollout", str(file), "--out", str(tmp_path / "out"), "--json"]
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["cells"] == 4
    assert [row["decisions"] for row in told["policies"]] == [20, 20, 20, 20]
    assert (tmp_path / "out" / MANIFEST).is_file()


def test_the_command_refuses_processes_of_this_machine_beside_a_master_of_spark():
    options = ["--workers", "2", "--master", "local[2]"]
    result = CliRunner().invoke(app, ["rollout", "q11-small", *options])
    assert result.exit_code == 2
    assert "--workers" in result.stderr
    assert "spark-defaults.conf" in result.stderr
