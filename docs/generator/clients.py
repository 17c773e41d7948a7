"""The table of RL libraries that learned on the environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from generator.markdown import page, table

FIGURES = Path(__file__).resolve().parents[1] / "figures" / "clients.json"


def clients() -> str:
    """Libraries, their versions, and what each did."""
    found: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text(encoding="utf-8"))
    rows = []
    for client, told in sorted(found.items()):
        versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
        did = "; ".join(f"{what}: {updates} updates" for what, updates in told["did"].items())
        rows.append([f"`tests/clients/{client}.py`", versions, did])
    return page(
        "RL libraries",
        "Each program below makes environments as its library's users do, and learns from them "
        "for a few real updates. `make validate` runs them, and writes this table's figures. "
        "[Recipes](../guides/recipes.md) has the shipped examples.",
        table(["program", "versions", "learned with"], rows),
        'Vector environments: TorchRL takes `autoreset_mode="Disabled"` as it is. `"SameStep"`, '
        'and so `GymEnv(id, num_envs=n)`, needs `info_keys=["action_mask"]`, since it stacks every '
        "key of `info` into tensors, and says `batch dimension mismatch` of those that are no "
        'numbers. It refuses `"NextStep"`. Gymnasium\'s `NumpyToTorch` needs the same `info_keys` '
        'in `"NextStep"` and `"Disabled"`, and in `"SameStep"` takes no vector environment at all.',
        "RLlib pins Gymnasium 1.2.2, older than this package asks for, and learns with it: make "
        "a virtual environment, install RLlib, then dsp-gym with `--no-deps`. "
        "CleanRL's scripts are written for 0.29.1, where dsp-gym has single environments: install "
        "that the same way, and give them an id with capacity actions, `--env-id "
        "dsp_gym:dsp_gym/Nexmark-Q11-Capacity-v2`; a "
        "[recipe](../guides/recipes.md#ppo-in-one-file) in their style runs on the present one. "
        "d3rlpy pins 1.0.0; install it with `--no-deps` beside the version of the table. "
        "[PettingZoo](../guides/operators-as-agents.md) has an agent for each operator.",
    )
