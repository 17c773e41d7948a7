"""Numbers drawn from a seed, equal from release to release."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

_T = TypeVar("_T")


class Draw:
    """Numbers made from raw uniform draws, which NumPy keeps equal from release to release.

    Args:
        seed: From 0 on, below 2^128.
    """

    def __init__(self, seed: int) -> None:
        self._stream = np.random.Generator(np.random.Philox(key=seed))

    def whole(self, low: int, high: int) -> int:
        """Draw a whole number, both ends included.

        Returns:
            The number.
        """
        return low + int(self._stream.random() * (high - low + 1))

    def real(self, low: float, high: float) -> float:
        """Draw evenly.

        Returns:
            A number with three decimals.
        """
        return round(low + self._stream.random() * (high - low), 3)

    def log(self, low: float, high: float) -> float:
        """Draw evenly on a logarithmic scale.

        Returns:
            A number with three significant digits.
        """
        return short(low * (high / low) ** self._stream.random())

    def one(self, values: Sequence[_T]) -> _T:
        """Draw one of several values.

        Returns:
            The value.
        """
        return values[self.whole(0, len(values) - 1)]

    def order(self, count: int) -> list[int]:
        """Draw an order of places.

        Returns:
            Each number below the count once.
        """
        return sorted(range(count), key=[self._stream.random() for _ in range(count)].__getitem__)


def short(value: float) -> float:
    """Round to three significant digits.

    Returns:
        The rounded value.
    """
    return round(value, 2 - math.floor(math.log10(value)))
