"""Figures of a policy that decides on capacities, on a benchmark's test jobs and loads.

python -m agents.studies.family runs/family/latest/policy --late-price 1 2.5 5
python -m agents.studies.family runs/family/latest/policy --policies mdp justin-artifact
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from agents.studies.planning import compare
from dsp_gym.config.files import load_model
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Play a policy at several prices of lateness, and others beside it."""
    parser = argparse.ArgumentParser(prog="python -m agents.studies.family", description=__doc__)
    parser.add_argument("policy", help="folder of the policy")
    parser.add_argument("--benchmark", default="core-v1")
    parser.add_argument("--seeds", type=int, default=1, help="of each test load")
    parser.add_argument("--late-price", type=float, nargs="*", default=[2.5])
    parser.add_argument("--policies", nargs="*", default=[], help="others, by name")
    parser.add_argument("--guardrails", default="none")
    chosen = parser.parse_args(arguments)
    entrants: list[dict[str, object]] = [
        {
            "name": f"family w={price:g}",
            "policy": {"policy": "learned", "params": {"path": chosen.policy, "late_price": price}},
        }
        for price in chosen.late_price
    ]
    entrants += [{"name": name, "policy": name} for name in chosen.policies]
    config = load_model(BenchmarkConfig, "benchmarks", chosen.benchmark)
    listed = [Entrant.model_validate({**one, "guardrails": chosen.guardrails}) for one in entrants]
    compare(config, listed, chosen.seeds)


if __name__ == "__main__":
    main()
