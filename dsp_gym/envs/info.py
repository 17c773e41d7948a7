"""The `info` of a step: its keys, and a dict made when a caller looks at it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from dsp_gym.envs.core import STEP_KEYS
from dsp_gym.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from _collections_abc import dict_items

INFO_KEYS = (*STEP_KEYS, "load", "action_mask")
"""All keys of `info`, of a step or a reset."""

LISTED_KEYS = ("action_mask", "cost", "slo_s", "interventions", "load")
"""Keys that the `info` of a simulated job lists unless others are asked for.

Gymnasium's vector environments copy every listed key of every environment at every step. The other
keys are found by name; `interventions`, too, where there are no guardrails.
"""

ALL = "all"
"""Stands for all keys, listed."""


def checked_keys(keys: str | Sequence[str] | None) -> frozenset[str] | None:
    """Check the keys that a caller wants in `info`.

    Args:
        keys: The keys, or "all".

    Returns:
        The keys; None where none are given.

    Raises:
        ConfigError: One is unknown.
    """
    if keys is None:
        return None
    if keys == ALL:
        return frozenset(INFO_KEYS)
    wanted = (keys,) if isinstance(keys, str) else tuple(keys)
    for key in wanted:
        if key not in INFO_KEYS:
            raise ConfigError(
                f"info has no key '{key}'",
                key="info_keys",
                remedy=did_you_mean(key, (*INFO_KEYS, ALL)),
            )
    return frozenset(wanted)


_UNMADE: dict[str, object] = {"": None}
"""Stands for the items until they are made: json's C code skips those of an empty dict."""


class LazyInfo(dict[str, object]):
    """A dict whose items are made at the first look at any of them, and some only by name.

    Most steps of a training end without a look at `info`.

    Args:
        tell: returns the values of some keys.
        listed: keys of the items.
        unlisted: further keys, which a look by name finds: `info["trips"]`, `"trips" in info` and
            `info.get("trips")`; they are no items.
    """

    __slots__ = ("_listed", "_tell", "_unlisted")

    def __init__(
        self,
        tell: Callable[[Collection[str]], dict[str, object]],
        listed: Collection[str],
        unlisted: Collection[str] = (),
    ) -> None:
        dict.__init__(self, _UNMADE)
        self._tell, self._unlisted = tell, unlisted
        self._listed: Collection[str] | None = listed  # None once the items are made

    def fill(self) -> None:
        """Make the items, unless they exist already."""
        listed = self._listed
        if listed is not None:
            self._listed = None
            dict.clear(self)
            dict.update(self, self._tell(listed))

    def items(self) -> dict_items[str, object]:
        """Return the items; vector environments of Gymnasium ask for them at every step."""
        self.fill()
        return dict.items(self)

    def __missing__(self, key: str) -> object:
        if key not in self._unlisted:
            raise KeyError(key)
        return self._tell((key,))[key]

    def __contains__(self, key: object) -> bool:
        self.fill()
        return super().__contains__(key) or key in self._unlisted

    def get(self, key: str, default: object = None) -> object:
        """Return the value of a key, listed or not; the default where there is none."""
        try:
            return self[key]
        except KeyError:
            return default

    def __reduce__(self) -> tuple[type[dict[str, object]], tuple[dict[str, object]]]:
        return dict, (dict(self),)


def _filled(name: str) -> Callable[..., object]:
    """Return the method of a dict, called after the items are made."""
    method: Callable[..., object] = getattr(dict, name)

    def call(self: LazyInfo, *arguments: object, **more: object) -> object:
        self.fill()
        return method(self, *arguments, **more)

    return call


LOOKS = (
    *("__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__"),
    *("__ne__", "__or__", "__repr__", "__reversed__", "__ror__", "__setitem__"),
    *("clear", "copy", "keys", "pop", "popitem", "setdefault"),
    *("update", "values"),
)
"""Methods of a dict that look at its items."""

for _name in LOOKS:
    setattr(LazyInfo, _name, _filled(_name))
