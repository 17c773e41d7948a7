"""What a shift of a frontier changes at equal lateness, where the page has one setting of a policy.

python -m dsp_gym.studies.shifted core-v2 --shift "outages three times as long"

Every setting of the policies, the tuned rules and the clairvoyant policy is played on the unseen
jobs and generated loads, once as they are and once under each shift asked for. Costs are compared
where all are equally late, as in the groups of the frontier; after each ratio to a tuned rule comes
its rise against the jobs as they are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dsp_gym.config.files import load_model
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.evaluation.frontier.config import FrontierConfig, SweptPolicy
from dsp_gym.evaluation.frontier.estimate import PolicyFrontier, estimate_cell
from dsp_gym.evaluation.frontier.play import play_shift
from dsp_gym.evaluation.run import PLAN
from dsp_gym.evaluation.shift import Shift
from dsp_gym.evaluation.statistics import BootstrapEstimate

__all__ = ["main", "ratios", "shifts_of", "swept"]


def shifts_of(config: FrontierConfig, names: Sequence[str]) -> tuple[Shift, ...]:
    """Shifts by name, after the jobs as they are.

    Args:
        config: The frontier.
        names: Of its shifts; none: all.

    Returns:
        The first one changes nothing.

    Raises:
        ConfigError: The frontier has no shifts, or none of a name.
    """
    if config.shifts is None:
        raise ConfigError("the frontier has no shifts", key="shifts")
    plain, *shifts = config.shifts.all()
    known = {shift.name: shift for shift in shifts}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"the frontier has no shift '{name}'", remedy=did_you_mean(name, known)
            )
    return (plain, *(known[name] for name in names or known))


def swept(config: FrontierConfig, policies: Sequence[str]) -> tuple[SweptPolicy, ...]:
    """Policies of a frontier, with all its tuned rules and the clairvoyant policy.

    Args:
        config: The frontier.
        policies: Labels.

    Returns:
        Those policies, each with every setting.

    Raises:
        ConfigError: The frontier has no policy of a label.
    """
    labels = [policy.name for policy in config.policies]
    for name in policies:
        if name not in labels:
            raise ConfigError(
                f"the frontier has no policy '{name}'", remedy=did_you_mean(name, labels)
            )
    chosen = {*policies, PLAN}
    return tuple(one for one in config.policies if one.rule or one.name in chosen)


def ratios(found: Sequence[PolicyFrontier], level: float) -> dict[str, dict[str, float]]:
    """Costs over those of each tuned rule at a lateness.

    Args:
        found: Frontiers of one shift.
        level: Share of the time late.

    Returns:
        Ratio by rule for every other policy; without those that are later at each setting.
    """
    return {
        one.policy: {
            rule: cost.value
            for rule, at in one.against.items()
            if (cost := at[level].cost) is not None
        }
        for one in found
        if not one.rule
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table: a row for each policy under each shift."""
    parser = argparse.ArgumentParser(prog="python -m dsp_gym.studies.shifted", description=__doc__)
    parser.add_argument("frontier")
    parser.add_argument("--shift", nargs="*", default=[], help="by name; all if not given")
    parser.add_argument("--policies", nargs="+", default=["learned"], help="by label")
    parser.add_argument("--late", type=float, default=0.02, help="share of the time late")
    parser.add_argument("--seeds", type=int, default=1, help="of each load")
    chosen = parser.parse_args(arguments)
    config = load_model(FrontierConfig, "frontiers", chosen.frontier).with_seeds(chosen.seeds)
    shifts, policies = shifts_of(config, chosen.shift), swept(config, chosen.policies)
    rules = [policy.name for policy in policies if policy.rule]
    columns = ("shift", "policy", "cost per day", *(f"of {rule}" for rule in rules))
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n")
    plain: dict[str, dict[str, float]] = {}
    for shift in shifts:
        runs = play_shift(config, shift, policies=policies)
        found = estimate_cell(
            runs, (chosen.late,), resamples=config.bootstrap, confidence=config.confidence
        )
        now = ratios(found, chosen.late)
        plain = plain or now
        for one in found:
            if not one.rule:
                before, after = plain[one.policy], now[one.policy]
                cells = [shift.name, one.policy, _said(one.cost[chosen.late], 2)]
                for rule in rules:
                    said = _said(one.against[rule][chosen.late].cost, 3)
                    if shift is not shifts[0] and rule in before and rule in after:
                        said += f", {after[rule] - before[rule]:+.3f}"
                    cells.append(said)
                sys.stdout.write(f"| {' | '.join(cells)} |\n")
                sys.stdout.flush()


def _said(found: BootstrapEstimate | None, digits: int) -> str:
    if found is None:
        return "–"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


if __name__ == "__main__":
    main()
