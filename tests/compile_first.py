"""Compile what most tests run: the simulator, the guardrails and every shipped policy.

    python -m tests.compile_first

It needs the package with the extra `plan`, pytest and Hypothesis, so that `.ci/run` compiles while
it installs the rest. What is compiled is kept beside the code, where every worker finds it.
"""

from __future__ import annotations

import numpy as np

from dsp_gym.guardrails import build
from tests.contracts.test_guardrail_contract import tick
from tests.contracts.test_policy_contract import POLICIES, decisions, made, snapshots
from tests.guarding import CHAINS


def main() -> None:
    """Decide and guard with all there is."""
    # All are made before one is asked: an installation under way may replace the entry points.
    policies = [made(name) for name in POLICIES]
    chains = [build(config, explain=False) for config in CHAINS.values()]
    for policy in policies:
        decisions(policy, snapshots(0, 5))
    snapshot, decision = tick(1)
    for chain in chains:
        chain.reset(snapshot.topology, np.arange(len(snapshot.topology)))
        chain.commit(snapshot, chain.allow(snapshot, decision))


if __name__ == "__main__":
    main()
