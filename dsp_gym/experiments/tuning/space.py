"""Search spaces: for each policy a function that picks its parameters.

Search spaces are beside the policies and are found like them, through entry points; so a
policy of another distribution can offer its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar, cast

from dsp_gym.config.plugins import Plugins
from dsp_gym.errors import ConfigError, PolicyError, did_you_mean

GROUP = "dsp_gym.search_spaces"
"""Entry-point group under which a distribution offers search spaces, by the policy's name."""

_OFFERED = Plugins(GROUP, "search space", "docs/guides/add-a-policy.md", PolicyError)

AGENT = "agent"
"""The search space of an agent's hyper-parameters."""

Value = TypeVar("Value", str, bool, int, float)

Ends = Literal["none", "low", "high", "both"]
"""Ends of a range beyond which there is nothing, such as a share of 1 or a wait of 0 s."""


class Pick(Protocol):
    """Picks values; the same name is the same dimension in every trial.

    An optimum on an end of its range says that the range is too small, unless the end is declared
    physical: there is nothing beyond it.
    """

    def real(
        self, name: str, low: float, high: float, *, log: bool = False, physical: Ends = "none"
    ) -> float:
        """Return a number between the ends, to four digits.

        Returns:
            The number picked, rounded to four significant digits.
        """

    def whole(
        self, name: str, low: int, high: int, *, log: bool = False, physical: Ends = "none"
    ) -> int:
        """Return a whole number, both ends included.

        Returns:
            The number picked.
        """

    def one(self, name: str, values: Sequence[Value], *, physical: Ends = "none") -> Value:
        """Return one of the values; of three numbers or more, the ends are least and largest.

        Returns:
            The value picked, unchanged.
        """


SearchSpace = Callable[[Pick], dict[str, object]]
"""Picks parameters, as they would stand in a policy's file; every pick must be a valid one."""


def search_space(policy: str, label: str | None = None) -> SearchSpace:
    """Return the search space of a policy's file by its label, or else of its policy.

    Args:
        policy: Name of the installed policy.
        label: Name of the file that sets some of its parameters; a space of its own may search
            others than the policy's.

    Returns:
        A function that picks the policy's parameters.

    Raises:
        ConfigError: None is offered for it.
        PolicyError: The search space cannot be loaded.
    """
    if label is not None and label in _OFFERED:
        return cast(SearchSpace, _OFFERED.load(label))
    if policy not in _OFFERED:
        raise ConfigError(
            f"no search space is known for '{policy}'",
            key="policy",
            remedy=f"{did_you_mean(policy, _OFFERED)} One's own policy says it in an entry point "
            f"of the group '{GROUP}': {_OFFERED.guide}.",
        )
    return cast(SearchSpace, _OFFERED.load(policy))
