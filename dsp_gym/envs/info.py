"""The `info` of a step: its keys, and a dict made when a caller looks at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dsp_gym.envs.core import STEP_KEYS
from dsp_gym.errors import ConfigError, did_you_mean

INFO_KEYS = (*STEP_KEYS, "load", "action_mask")
"""All keys of `info`, of a step or a reset."""


def checked_keys(keys: Sequence[str] | None) -> tuple[str, ...]:
    """Check the keys that a caller wants in `info`.

    Args:
        keys: The keys; None: all.

    Returns:
        The keys.

    Raises:
        ConfigError: One is unknown.
    """
    if keys is None:
        return INFO_KEYS
    wanted = (keys,) if isinstance(keys, str) else tuple(keys)
    for key in wanted:
        if key not in INFO_KEYS:
            raise ConfigError(
                f"info has no key '{key}'", key="info_keys", remedy=did_you_mean(key, INFO_KEYS)
            )
    return wanted


class LazyInfo(dict[str, object]):
    """A dict whose items are made at the first look at any of them.

    Most steps of a training end without a look at `info`.

    Args:
        make: returns the items; called once at most.
    """

    def __init__(self, make: Callable[[], dict[str, object]]) -> None:
        super().__init__({"": None})  # json's C code skips the items of an empty dict
        self._make: Callable[[], dict[str, object]] | None = make

    def fill(self) -> None:
        """Make the items, unless they exist already."""
        if self._make is not None:
            make, self._make = self._make, None
            dict.clear(self)
            dict.update(self, make())

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
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__"),
    *("__ne__", "__or__", "__repr__", "__reversed__", "__ror__", "__setitem__"),
    *("clear", "copy", "get", "items", "keys", "pop", "popitem", "setdefault"),
    *("update", "values"),
)
"""Methods of a dict that look at its items."""

for _name in LOOKS:
    setattr(LazyInfo, _name, _filled(_name))
