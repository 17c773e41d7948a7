"""How long a referee takes: CPU time per decision of each policy, times its decisions.

    python -m dsp_gym.studies.bench.referee core-v3 --each 2

Every policy plays a part of one family of load at its middle setting, and the rest is computed.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from dsp_gym.config.files import load_model
from dsp_gym.evaluation.batch_of_runs import play
from dsp_gym.evaluation.frontier.config import SweptPolicy
from dsp_gym.evaluation.frontier.play import entrants
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.development import DevelopmentRuns, development_runs
from dsp_gym.evaluation.referee.play import RefereeRuns
from dsp_gym.evaluation.referee.triples import DrawnSet


def seconds_per_decision(policy: SweptPolicy, part: DevelopmentRuns) -> float:
    """Time a policy at its middle setting.

    Args:
        policy: The policy.
        part: Runs to play.

    Returns:
        CPU seconds of all threads.
    """
    middle = policy.values[len(policy.values) // 2 :][:1]
    entrant = entrants(policy.model_copy(update={"values": middle, "trainings": ()}))[0]
    batch = replace(part.batch, entrant=entrant)
    play(batch.take(0, 1))  # compiles, and reads files
    begun = time.process_time()
    play(batch)
    return (time.process_time() - begun) / part.decisions


def main(arguments: list[str] | None = None) -> int:
    """Print decisions per CPU-second of each policy, and the hours of all (command line).

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("referee", nargs="?", default="core-v3")
    parser.add_argument("--each", type=int, default=2, help="triples of each kind of jobs")
    parser.add_argument("--cores", type=int, default=2, help="cores that share the work")
    given = parser.parse_args(arguments)
    config = load_model(RefereeConfig, "referees", given.referee)
    asked = RefereeRuns.of(config, DrawnSet.development(config.development))
    part = development_runs(config, each=given.each, families=(config.loads[0].name,))[0]
    whole = 0.0
    for policy in config.policies:
        each = seconds_per_decision(policy, part)
        alone = config.model_copy(update={"policies": (policy,)})
        decisions = asked.decisions(alone)
        whole += each * decisions
        sys.stdout.write(
            f"{policy.name:34s} {1 / each:8,.0f} decisions/CPU-s, {decisions:11,} decisions\n"
        )
        sys.stdout.flush()
    sys.stdout.write(
        f"{whole:,.0f} CPU-s: {whole / given.cores / 3600:.1f} h on {given.cores} cores\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
