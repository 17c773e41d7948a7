"""The GPU without a GPU: layouts, refusals, and code that compiles for a card that is not there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from dsp_gym.envs.episodes import episode_seed
from dsp_gym.envs.scenarios import DEFAULT_LOADS
from dsp_gym.errors import ConfigError, DeviceError, MissingExtraError
from dsp_gym.simulation.cuda import card
from dsp_gym.studies.bench import copied_tree, device

needs_numba_cuda = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed"
)
without_a_card = pytest.mark.skipif(
    card.is_simulated() or Path("/dev/nvidia0").exists(), reason="there is a card"
)
simulated = pytest.mark.skipif(not card.is_simulated(), reason="runs in the simulator's process")
HOPPER = (9, 0)
REGISTERS = 128
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "gpu.md"


def environment(**changes: Any) -> Any:
    """An environment on a card, of which nothing is allocated."""
    from dsp_gym.envs.cuda.device_env import DeviceEnv
    from dsp_gym.envs.scenarios import changed, scenario

    count, reward = changes.pop("num_envs", 5), changes.pop("reward", None)
    made = scenario(job="nexmark-q5", explain=False, **changes)
    return DeviceEnv(changed(made, {"reward": reward}, "train"), count, rows=2)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dsp-gym\[gpu\]'"):
        card.find_card()


def test_an_unknown_device_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no device 'cdua'.*Did you mean 'cuda'"):
        gymnasium.make_vec("dsp_gym/Nexmark-Q5-v1", num_envs=2, device="cdua")


def test_the_cpu_is_the_device_unless_another_is_named() -> None:
    made = gymnasium.make_vec("dsp_gym/Nexmark-Q5-v1", num_envs=2, device="cpu")
    assert type(made.unwrapped).__name__ == "AutoscaleVectorEnv"


@needs_numba_cuda
@without_a_card
def test_without_a_card_the_error_names_the_driver() -> None:
    with pytest.raises(DeviceError, match=r"no NVIDIA GPU can be used.*nvidia-smi") as raised:
        card.find_card()
    with pytest.raises(DeviceError, match="no NVIDIA GPU can be used"):
        gymnasium.make_vec("dsp_gym/Nexmark-Q5-v1", num_envs=2, device="cuda")
    assert "leave out device='cuda'" in str(raised.value)


@needs_numba_cuda
@pytest.mark.parametrize("capability", [(6, 1), (7, 0), (7, 2)])
def test_a_card_that_cuda_no_longer_compiles_for_is_refused(capability: tuple[int, int]) -> None:
    old = SimpleNamespace(name="an old card", compute_capability=capability)
    context = SimpleNamespace(get_memory_info=lambda: (2**30, 2**30))
    numbas = SimpleNamespace(get_current_device=lambda: old, current_context=lambda: context)
    with pytest.raises(DeviceError, match=r"an old card has compute capability.*with 7\.5 or more"):
        card._current(numbas)


@needs_numba_cuda
@pytest.mark.parametrize("fastest", [None, 0, 1, 2])
def test_strides_lead_to_the_items_in_the_order_they_are_copied_in(fastest: int | None) -> None:
    from dsp_gym.simulation.cuda.device_arrays import DeviceArray, DeviceView

    values = np.arange(24.0).reshape(2, 3, 4)
    array = DeviceArray.of(values, fastest)
    memory = array._flat(values)
    there = np.lib.stride_tricks.as_strided(memory, array.shape, array.strides)
    np.testing.assert_array_equal(there, values)
    if fastest is not None:
        assert array.strides[fastest] == 8
    part = DeviceView.of_part(array, 1, 2)
    at = memory[part._offset // 8 :]
    there = np.lib.stride_tricks.as_strided(at, part.shape, part.strides)
    np.testing.assert_array_equal(there, values[:, 2])


def array_of_others(stream: int | None) -> Any:
    """An array of another library, as the interface describes it; no memory is there."""
    known = {"shape": (2, 3), "typestr": "<i8", "data": (4096, False), "version": 3}
    return SimpleNamespace(__cuda_array_interface__=known | {"stream": stream})


@needs_numba_cuda
def test_others_are_told_which_stream_results_are_pending_on() -> None:
    from dsp_gym.simulation.cuda.device_arrays import DeviceView

    view = DeviceView.of_interface(array_of_others(None), (2, 3))
    assert view.__cuda_array_interface__["stream"] == 1  # the legacy default stream


@needs_numba_cuda
@pytest.mark.parametrize(("stream", "waited"), [(None, []), (1, []), (2, [2]), (7, [7])])
def test_actions_on_another_stream_are_waited_for(
    stream: int | None, waited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dsp_gym.simulation.cuda.device_arrays import DeviceView

    found: list[int] = []

    def external_stream(address: int) -> Any:
        return SimpleNamespace(synchronize=lambda: found.append(address))

    monkeypatch.setattr("numba.cuda.external_stream", external_stream)
    DeviceView.of_interface(array_of_others(stream), (2, 3))
    assert found == waited


@needs_numba_cuda
def test_a_seed_on_the_card_is_that_of_the_episode() -> None:
    from dsp_gym.envs.cuda.tables import hashed_seed

    for seed, episode in ((0, 0), (7, 3), (2**62, 5), (2**31 - 1, 10**6)):
        assert hashed_seed(seed, episode) == episode_seed(seed, episode)


@needs_numba_cuda
def test_what_cannot_go_to_a_card_is_refused_by_name(tmp_path: Path) -> None:
    for action in ("vertex", "capacity"):
        with pytest.raises(ConfigError, match=r"the guardrail excess_budget is not.*whole policy"):
            environment(guardrails="deployed", action=action)
    with pytest.raises(ConfigError, match="a trace of every second is not kept"):
        environment(config=_traced())
    with pytest.raises(ConfigError, match="capacity_floor asks ds2, which is not compiled"):
        environment(guardrails=str(_floor_of(tmp_path, "ds2")))


def _traced() -> dict[str, object]:
    env = {"simulation": {"trace": True}}
    return {"name": "traced", "jobs": ["nexmark-q5"], "loads": DEFAULT_LOADS, "env": env}


def _floor_of(folder: Path, policy: str) -> Path:
    path = folder / "floor.yaml"
    path.write_text(f"guardrails: [{{kind: capacity_floor, policy: {policy}}}]\n", "utf-8")
    return path


@needs_numba_cuda
def test_the_memories_of_guardrails_are_counted() -> None:
    plain, floor = environment(), environment(guardrails="floor")
    vertices = plain.vertices
    # Of each job, two flags and ten numbers of each vertex in Justin's history; since when a vertex
    # is short of tasks, and whether caches fill, by two numbers of each vertex; in a chain with a
    # cool-down, besides, the last moves.
    kept = 2 + 10 * 8 * vertices + 8 + 8 + 2 * 8 * vertices
    assert floor._own_bytes - plain._own_bytes == kept * plain.num_envs
    patient = environment(guardrails=device.GUARDED)
    moves = 1 + 4 * 8 * vertices
    assert patient._own_bytes - floor._own_bytes == moves * plain.num_envs


@needs_numba_cuda
def test_some_environments_cannot_begin_with_other_seeds() -> None:
    from dsp_gym.envs.cuda.vector import DeviceVectorEnv

    made = DeviceVectorEnv(2, job="nexmark-q5", rows=2)
    for seed in (None, 5):
        with pytest.raises(ConfigError, match="drawn for all environments together"):
            made.reset(seed=seed, options={"reset_mask": np.array([True, False])})


@needs_numba_cuda
@pytest.mark.parametrize("seed", [[1], [-5, 3], -1, 0.5, [1.5, 2], True])
def test_seeds_are_checked_as_on_the_cpu(seed: Any) -> None:
    from dsp_gym.envs.cuda.vector import DeviceVectorEnv

    told = []
    for made in (
        gymnasium.make_vec("dsp_gym/Nexmark-Q5-v1", num_envs=2),
        DeviceVectorEnv(2, job="nexmark-q5", rows=2),
    ):
        with pytest.raises(ConfigError) as raised:
            made.reset(seed=seed)
        told.append(str(raised.value))
    assert told[0] == told[1]


@needs_numba_cuda
def test_no_environment_keeps_its_stream_while_others_are_seeded() -> None:
    from dsp_gym.envs.cuda.vector import DeviceVectorEnv

    made = DeviceVectorEnv(2, job="nexmark-q5", rows=2)
    with pytest.raises(ConfigError, match=r"none can keep its stream.*a number for each"):
        made.reset(seed=[None, 3])


@needs_numba_cuda
def test_a_mask_of_another_shape_or_type_is_refused() -> None:
    from dsp_gym.envs.cuda.vector import DeviceVectorEnv

    made = DeviceVectorEnv(2, job="nexmark-q5", rows=2)
    for mask in (np.ones(3, np.bool_), np.ones(2, np.int64)):
        with pytest.raises(ConfigError, match=r"has shape .*expected \(2,\) and bool"):
            made.reset(options={"reset_mask": mask})


@needs_numba_cuda
def test_a_step_before_the_first_reset_is_refused() -> None:
    from dsp_gym.envs.cuda.vector import DeviceVectorEnv

    made = DeviceVectorEnv(2, job="nexmark-q5", rows=2)
    with pytest.raises(RuntimeError, match="reset\\(\\) comes first"):
        made.step(np.zeros(made.action_space.shape, np.int64))
    with pytest.raises(RuntimeError, match="reset\\(\\) comes first"):
        made.device_env.begin(np.ones(2, np.bool_))


@needs_numba_cuda
def test_too_many_environments_are_refused_before_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dsp_gym.envs.cuda import device_env

    small = card.Card("a small card", HOPPER, 2**30, 2**22, "13.0")
    monkeypatch.setattr(device_env, "find_card", lambda: small)
    env = environment(num_envs=4000)
    monkeypatch.setattr(type(env.pool), "bytes", property(lambda self: 0))
    fit = int(2**22 * (1 - device_env.RESERVED)) // env.bytes_per_env
    with pytest.raises(DeviceError, match=f"Take at most {fit:,}"):
        env.check_memory()


@needs_numba_cuda
def test_the_guide_says_what_an_environment_takes() -> None:
    from dsp_gym.envs.cuda.device_env import DeviceEnv
    from dsp_gym.envs.scenarios import scenario
    from dsp_gym.simulation.cuda.device_arrays import bytes_of

    def kib(job: str, guardrails: str | None = None, action: Any = None) -> tuple[float, float]:
        made = DeviceEnv(
            scenario(job=job, guardrails=guardrails, explain=False, action=action), 1024
        )
        return made.bytes_per_env / 1024, bytes_of(made._state.arrays) / 1024 / 1024

    (whole, simulated), (q5, _) = kib("bench-8"), kib("nexmark-q5")
    floors = [kib(job, "floor")[0] - bare for job, bare in (("bench-8", whole), ("nexmark-q5", q5))]
    page = " ".join(GUIDE.read_text("utf-8").split())
    assert f"takes {whole:.1f} KiB, of which {simulated:.1f} KiB are its simulated job" in page
    assert f"one of Nexmark Q5 takes {q5:.1f} KiB" in page
    assert f"remember {floors[0]:.1f} and {floors[1]:.1f} KiB more" in page
    capacity = [kib(job, action="capacity")[0] for job in ("bench-8", "nexmark-q5")]
    assert f"With capacity actions they take {capacity[0]:.1f} and {capacity[1]:.1f} KiB" in page


@needs_numba_cuda
def test_environments_share_the_episodes_of_their_own_job() -> None:
    from dsp_gym.envs.cuda.pool import EpisodePool
    from dsp_gym.envs.scenarios import scenario
    from dsp_gym.job.catalog import load_job

    made = scenario(job="nexmark-q5", explain=False)
    specs = tuple(load_job(name) for name in ("nexmark-q1", "nexmark-q5"))
    jobs = np.array([0, 0, 0, 1, 1, 1, 1])
    pool = EpisodePool(specs, jobs, made.loads, "train", made.env, most_rows=4)
    # Those that share a row stand together, and the first of them is the CPU's.
    assert pool.row.tolist() == [0, 0, 1, 2, 2, 3, 3]
    assert pool.members.tolist() == [0, 2, 3, 5]
    np.testing.assert_array_equal(jobs[pool.members[pool.row]], jobs)


@needs_numba_cuda
def test_recorded_loads_and_jobs_of_a_pool_are_those_of_the_cpu(tmp_path: Path) -> None:
    from dsp_gym.envs.batch import AutoscaleBatch
    from dsp_gym.envs.cuda.pool import EpisodePool
    from dsp_gym.envs.scenarios import scenario

    rows = "".join(f"{t},{100 + 40 * (t % 7)}\n" for t in range(0, 900, 10))
    (tmp_path / "day.csv").write_text("t_seconds,rate\n" + rows, "utf-8")
    load = {"form": "trace", "path": "day.csv", "divide_by_peak": True, "start": "random"}
    made = scenario(
        config={
            "name": "recorded",
            "jobs": ["nexmark-q1", "nexmark-q5"],
            "loads": {
                "train": {"loads": [{"name": "day", "load": load}], "seeds": {"from": 0, "to": 9}}
            },
            "env": {
                "action": "capacity",
                "episode_s": 300,
                "start": "random",
                "randomise": {"job": True, "load_scale": [0.5, 1], "load_start": "any"},
            },
        },
        explain=False,
    )
    jobs, seeds = np.array([0, 0, 1, 1]), np.arange(7, 11)
    pool = EpisodePool(made.specs, jobs, made.loads, "train", made.env, tmp_path)
    drawn, rates = pool.draw(seeds)
    given = made.specs, jobs.tolist(), made.loads, "train", made.env
    cpu = AutoscaleBatch(*given, base_dir=tmp_path)
    cpu.seed(seeds)
    for episode in range(pool.episodes):
        cpu.reset()
        at = pool.row * pool.episodes + episode
        np.testing.assert_array_equal(rates[at, 0], cpu.jobs.rates)
        np.testing.assert_array_equal(drawn.job[at], cpu.topology.row)
        np.testing.assert_array_equal(drawn.unit[at], cpu.reference_cost_per_s)
        np.testing.assert_array_equal(drawn.parallelism[at], cpu.snapshot.parallelism)
    assert len(np.unique(drawn.job)) == 2


@needs_numba_cuda
def test_a_kernel_compiles_without_a_card_and_rounds_as_the_cpu_does() -> None:
    from numba import cuda

    from dsp_gym.simulation.cuda.device_arrays import DeviceArray, DeviceHandle
    from dsp_gym.simulation.cuda.kernels import Kernel, function_of
    from dsp_gym.simulation.cuda.threads import Loads
    from dsp_gym.simulation.outcome import _average
    from dsp_gym.simulation.state import OUTCOME

    average, shape = function_of(_average), (8, 1, len(OUTCOME))
    empty = DeviceArray((1, 0, 1), np.float64)
    outcome, load = DeviceArray(shape, np.float64, 0), DeviceArray((8,), np.int64)
    handle = DeviceHandle(Loads(empty, load, outcome, empty, empty))  # type: ignore[arg-type]

    def kernel(loads: Any) -> None:
        j = cuda.grid(1)
        mine = loads.arrays.outcome[j]
        average(mine, 0, 1)
        mine[0, 0] += mine[0, 1] * mine[0, 2]

    text = Kernel(kernel, [handle]).ptx(HOPPER)
    assert ".target sm_90" in text
    assert ".target sm_75" in Kernel(kernel, [handle]).ptx(card.OLDEST)
    assert "mul" in text
    assert "fma.rn.f64" not in text
    assert unrounded(text) == []


@needs_numba_cuda
def test_no_kernel_is_compiled_again_when_it_is_linked() -> None:
    # The linker fuses multiplication and addition of what it optimises: on a card the cost of 27 %
    # of decisions was an ulp off, and of `cuda.jit(lto=False)(function)` numba-cuda drops `lto`.
    options = environment().kernels["act"]._dispatcher().targetoptions
    assert (options["lto"], options["max_registers"]) == (False, REGISTERS)


@needs_numba_cuda
def test_machine_code_follows_from_every_file_it_is_made_of() -> None:
    made = environment(guardrails="floor").kernels
    files = {name: {s[0] for s in one.dependencies() if len(s) == 3} for name, one in made.items()}
    for name in ("act", "begin", "look"):
        assert {"dsp_gym.simulation.cuda.threads", "dsp_gym.envs.cuda.threads"} <= files[name]
    assert {"dsp_gym.simulation.flow", "dsp_gym.envs.reward"} <= files["act"]
    assert {"dsp_gym.envs.features", "dsp_gym.simulation.measure"} <= files["look"]
    assert {"dsp_gym.guardrails.shipped", "baselines.justin", "baselines.ds2"} <= files["guard"]
    capacity = environment(action="capacity").kernels
    files["aim"] = {s[0] for s in capacity["look"].dependencies() if len(s) == 3}
    assert {"dsp_gym.envs.capacity.action", "dsp_gym.sizing.filter"} <= files["aim"]
    act = environment().kernels["act"]
    assert act._stamp() == environment().kernels["act"]._stamp()
    assert act._stamp() != environment(reward={"slo": 9.0}).kernels["act"]._stamp()


EXACT = {"ceil", "copysign", "fabs", "floor", "inf", "isfinite", "isinf", "isnan", "nan", "pi"}
EXACT |= {"sqrt", "trunc"}
"""What both devices compute alike: IEEE 754 rounds the square root as it does a division."""


@needs_numba_cuda
def test_the_guide_names_the_functions_whose_last_bit_may_differ() -> None:
    called = {"pow"}  # of the operator **
    for env in (environment(guardrails="floor"), environment(action="capacity")):
        for kernel in env.kernels.values():
            for stamp in kernel.dependencies():
                if isinstance(stamp, tuple) and (module := sys.modules.get(stamp[0])):
                    file = module.__file__ or ""
                    text = Path(file).read_text("utf-8")
                    called |= set(re.findall(r"\b(?:math|np)\.(\w+)", text)) & set(dir(math))
    page = " ".join(GUIDE.read_text("utf-8").split())
    said = re.search(r"What may differ is the last bit of (.*?), which NVIDIA's library", page)
    assert said is not None
    assert set(re.findall(r"`(\w+)`", said[1])) == called - EXACT


@needs_numba_cuda
@pytest.mark.parametrize("chain", ["floor", device.GUARDED], ids=["floor", "all"])
def test_environments_alike_share_the_machine_code_of_every_kernel(chain: str) -> None:
    # Both stand in memory at once: an address in a stamp would differ, as from process to process.
    one, other = (environment(guardrails=chain).kernels for _ in range(2))
    assert {name: k._stamp() for name, k in one.items()} == {
        name: k._stamp() for name, k in other.items()
    }
    assert " at 0x" not in repr([kernel.constants for kernel in one.values()])


@pytest.mark.validate
@needs_numba_cuda
def test_every_kernel_compiles_without_a_card() -> None:
    from dsp_gym.simulation.cuda.batch import advance_kernel, ask_kernel
    from dsp_gym.simulation.cuda.kernels import Kernel
    from dsp_gym.simulation.cuda.threads import threads

    env = environment(guardrails=device.GUARDED)
    own = threads(env.vertices)
    state = env._model, env._state
    for kernel in (
        *env.kernels.values(),
        environment(guardrails="floor").kernels["guard"],
        *environment(guardrails="floor", action="capacity").kernels.values(),
        Kernel(advance_kernel(own.advance, 60), (*state, env._loads)),
        Kernel(ask_kernel(own.ask), (*state, env._wanted, env._loads)),
    ):
        text = kernel.ptx(HOPPER)
        assert text.count(".entry") == 1
        assert unrounded(text) == []
        assert registers(text) <= REGISTERS


def unrounded(text: str) -> list[str]:
    """Find arithmetic whose rounding the kernel leaves to the assembler, which may then fuse it."""
    return re.findall(r"\b(?:mul|add|sub)\.f(?:64|32)\b", text)


def registers(text: str) -> int:
    """Assemble a kernel for the card that is not there; returns the registers of a thread."""
    from cuda.bindings import nvjitlink

    options = ["-arch=sm_90", f"-maxrregcount={REGISTERS}", "-Xptxas=-v", "-verbose", "-fma=0"]
    link, code = nvjitlink.create(len(options), options), text.encode()
    nvjitlink.add_data(link, nvjitlink.InputType.PTX, code, len(code), "kernel")
    nvjitlink.complete(link)
    told = bytearray(nvjitlink.get_info_log_size(link))
    nvjitlink.get_info_log(link, told)
    return int(re.findall(rb"used (\d+) registers", told)[-1])


@needs_numba_cuda
@pytest.mark.skipif(card.is_simulated(), reason="this is the simulator's process")
def test_under_the_simulator_environments_behave_as_on_the_cpu() -> None:
    # In a process of its own: numba reads the variable when it is imported.
    given = ["-q", "-n0", "-p", "no:benchmark", "-k", "simulated", __file__]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *given],
        env={**os.environ, card.SIMULATED: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@simulated
def test_simulated_a_reset_without_a_seed_begins_the_next_episodes() -> None:
    seen = []
    for name in ("cpu", "cuda"):
        envs: Any = gymnasium.make_vec("dsp_gym/Nexmark-Q5-v1", num_envs=2, device=name)
        hold = np.zeros(envs.action_space.shape, np.int64)
        shown = []
        for seed in (7, None):
            shown.append(on_host(envs.reset(seed=seed)[0]))
            shown += [on_host(envs.step(hold)[0]) for _ in range(2)]
        seen.append(np.array(shown))
    cpu, device_seen = seen
    assert (cpu[:3] != cpu[3:]).any()
    np.testing.assert_array_equal(device_seen, cpu)


@simulated
def test_simulated_actions_are_checked_as_on_the_cpu() -> None:
    made = [
        gymnasium.make_vec("dsp_gym/Nexmark-Q5-v1", num_envs=2, device=name)
        for name in ("cpu", "cuda")
    ]
    hold = np.zeros(made[0].action_space.shape, np.int64)
    for wrong in (hold + 0.9, hold[:, 1:], hold[:1], hold.astype(str), hold - 1):
        told = []
        for envs in made:
            envs.reset(seed=7)
            with pytest.raises(ValueError) as raised:
                envs.step(wrong)
            told.append((type(raised.value), str(raised.value)))
        assert told[0] == told[1]
    for envs in made:
        envs.step(hold.astype(np.float32))


@simulated
def test_simulated_parts_without_time_stand_in_the_file(tmp_path: Path) -> None:
    out, name = tmp_path / "device.json", "environment, steps/s"
    assert device.main(["--seconds", "0", "--parts", name, "--out", str(out)]) == 0
    assert json.loads(out.read_text("utf-8"))["left_out"] == [name]


def on_host(array: Any) -> Any:
    """Copy observations of either device."""
    return np.array(array.to_host() if hasattr(array, "to_host") else array)


@pytest.mark.validate
@needs_numba_cuda
def test_under_the_simulator_every_number_is_that_of_the_cpu(tmp_path: Path) -> None:
    # Four kinds of jobs with all faults and rescales, and whole steps over the end of an episode.
    # In a process of its own: numba reads the variable when it is imported.
    out = tmp_path / "device.json"
    done = subprocess.run(
        [sys.executable, "-m", "dsp_gym.studies.bench.device", "--out", str(out)],
        env={**os.environ, card.SIMULATED: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text("utf-8"))
    jobs = found["jobs beside the CPU's"]
    parts = "environments", "guardrails", "capacity actions"
    envs, guarded, capacity = (found[f"{part} beside the CPU's"] for part in parts)
    compared = [jobs[o][q] for o in ("plain", "faulty") for q in ("outcomes", "state")]
    parts = "observations", "rewards", "ends", "masks"
    compared += [one[q] for one in (envs, guarded, capacity) for q in parts]
    assert min(capacity["acted"], capacity["rescales"]) > 0
    assert all(one == {"bit_equal": 1.0, "worst": 0.0} for one in compared)
    assert all(jobs[options]["rescales"] > 0 for options in ("plain", "faulty"))
    assert sum(times > 0 for times in guarded["changed"].values()) >= 3
    for name in ("PPO, decisions/s", "PPO on capacity actions, decisions/s"):
        learning = found[name]
        assert "left out" in learning or all(one["decisions/s"] > 0 for one in learning.values())
    moved = found["policies on both devices"]
    if "left out" not in moved:
        assert [one["same returns"] for one in moved.values()] == [1.0, 1.0]


def test_a_copied_tree_offers_what_an_installed_one_does(tmp_path: Path) -> None:
    folder = copied_tree.described(GUIDE.parents[2], tmp_path)
    (found,) = importlib.metadata.distributions(path=[str(folder)])
    offered = {(one.group, one.name, one.value) for one in found.entry_points}
    installed = importlib.metadata.distribution("dsp-gym").entry_points
    wanted = {(one.group, one.name, one.value) for one in installed}
    assert offered == {one for one in wanted if one[0] != "console_scripts"}


@needs_numba_cuda
@without_a_card
def test_without_a_card_nothing_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert device.main([]) == 2
    assert "Nothing was measured: no NVIDIA GPU can be used" in capsys.readouterr().err


@pytest.mark.skipif(card.is_simulated(), reason="the simulator has no allowances")
def test_a_part_begins_only_where_its_allowance_is_left() -> None:
    part = device.BenchPart(lambda amounts: {}, 20)
    assert part.fits(20)
    assert not part.fits(19.9)


def test_a_part_that_cannot_be_done_is_left_out_with_its_reason() -> None:
    def fail(amounts: Any) -> Any:
        raise DeviceError("131,072 environments need 4.3 GiB", remedy="Take at most 9,000.")

    found = device.BenchPart(fail, 20).done(device.TINY)
    assert found == {"left out": "131,072 environments need 4.3 GiB. Take at most 9,000."}
