"""`--only`: some of the policies of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsp_gym.evaluation.config import BenchmarkConfig

__all__ = ["chosen_of", "narrowed"]


def chosen_of(only: Iterable[str] | None, labels: Sequence[str]) -> tuple[str, ...]:
    """The labels that a command line chose.

    Args:
        only: Values of `--only`, each one label or several, separated by commas.
        labels: Labels there are.

    Returns:
        Each label once, in the order given; empty: all take part.

    Raises:
        ConfigError: No policy of the comparison has that label.
    """
    from dsp_gym.errors import ConfigError, did_you_mean

    wanted = [label.strip() for one in only or () for label in one.split(",")]
    chosen = tuple(dict.fromkeys(label for label in wanted if label))
    for label in chosen:
        if label not in labels:
            raise ConfigError(
                "takes no part", key="--only", value=label, remedy=did_you_mean(label, labels)
            )
    return chosen


def narrowed(
    benchmark: BenchmarkConfig, only: Iterable[str] | None, added: Sequence[str] = ()
) -> BenchmarkConfig:
    """The benchmark with the chosen policies alone.

    Args:
        benchmark: The benchmark, with all that could take part.
        only: Values of `--only`.
        added: Policies of `--policy`; they stay.

    Returns:
        The chosen policies, the reference and those added, in the benchmark's order.
    """
    chosen = chosen_of(only, [entrant.name for entrant in benchmark.policies])
    if not chosen:
        return benchmark
    kept = {*chosen, benchmark.reference, *added}
    entrants = tuple(
        entrant for entrant in benchmark.policies if entrant.name in kept or entrant.policy in added
    )
    return benchmark.model_copy(update={"policies": entrants})
