"""Numbers as Java writes and rounds them, and the order of its hash maps.

The autoscaler rounds on the shortest decimal text of a double, so that 1.0005 becomes 1.001
although its binary value lies below the tie. A double whose shortest text is the tie `(n + 1/2) /
1000` is the nearest one to it, which is the result of dividing: comparing with that quotient
decides without any text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsp_gym.compiling import njit

INT_MAX = 2147483647
LONG_MAX = 9.223372036854775807e18
WHOLE = 8.0e12
"""Size from which on doubles lie further apart than a thousandth."""


@njit(cache=True, nogil=True, error_model="numpy")
def round3(x: float) -> float:
    """Round to three decimals, half up (away from zero); a number that would become 0 stays.

    >>> round3(1.0005), round3(2.6749999), round3(0.0004)
    (1.001, 2.675, 0.0004)

    Returns:
        The rounded number.
    """
    size = abs(x)
    # WHOLE * 1000 stays below 2^53, so that n is exact.
    if not size < WHOLE:  # NaN, infinite, or without decimals
        return x
    n = np.floor(size * 1000.0)
    # The product is rounded too: put n back below x, then decide on the nearest tie.
    if n / 1000.0 > size:
        n -= 1.0
    elif (n + 1.0) / 1000.0 <= size:
        n += 1.0
    # The tie (n + 1/2) / 1000, written as one quotient of whole numbers, hence correctly rounded.
    if size >= (2.0 * n + 1.0) / 2000.0:
        n += 1.0
    if n == 0.0:
        return x
    return float(n / 1000.0 if x > 0 else -n / 1000.0)


@njit(cache=True, nogil=True, error_model="numpy")
def round_half_up(x: float) -> float:
    """Round as Java's `Math.round`: the floor of x + 1/2 as a long, without that sum's error.

    >>> round_half_up(2.5), round_half_up(-2.5), round_half_up(0.49999999999999994)
    (3.0, -2.0, 0.0)

    Returns:
        A whole number.
    """
    if np.isnan(x):
        return 0.0
    if x >= LONG_MAX:
        return LONG_MAX
    # x - whole is exact, other than x + 0.5.
    whole = np.floor(x)
    return float(whole + 1.0 if x - whole >= 0.5 else whole)


@njit(cache=True, nogil=True, error_model="numpy")
def ceil2(x: float) -> float:
    """Round up to two decimals on the decimal text; for numbers between 0 and 1.

    Returns:
        The rounded number.
    """
    # The product is off by a rounding at most: step to the exact quotient.
    n = np.floor(x * 100.0)
    while n / 100.0 < x:
        n += 1.0
    while (n - 1.0) / 100.0 >= x:
        n -= 1.0
    return float(n / 100.0)


def ceiling_text(x: float) -> str:
    """Write a `fraction` option: three decimals, rounded up, as Java writes a float.

    >>> ceiling_text(0.65312), ceiling_text(0.0), ceiling_text(0.0002), ceiling_text(0.32)
    ('0.654', '0.0', '0.001', '0.32')

    Returns:
        The text.
    """
    # As in `ceil2`, with three decimals.
    n = np.floor(x * 1000.0)
    while n / 1000.0 < x:
        n += 1.0
    while (n - 1.0) / 1000.0 >= x:
        n -= 1.0
    return repr(float(n / 1000.0))


def hash_order(names: Sequence[str]) -> list[int]:
    """Order names as a Java `HashMap` that they were put into one by one.

    Flink visits the vertices of a job in this order and raises their events in it.

    >>> hash_order(["src0", "op0", "op1", "op2"])
    [3, 2, 0, 1]

    Returns:
        Their numbers.
    """
    # HashMap starts with 16 buckets and doubles beyond a load factor of 3/4.
    buckets = 16
    while 4 * len(names) > 3 * buckets:
        buckets *= 2
    return sorted(range(len(names)), key=lambda i: _spread(names[i]) % buckets)


def _spread(text: str) -> int:
    """Return Java's hash code of a text, its upper half mixed into the lower one."""
    # Java's String.hashCode over UTF-16 units, modulo 2^32; HashMap mixes in the upper half.
    units, code = text.encode("utf-16-be"), 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + 256 * high + low) % (1 << 32)
    return code ^ (code >> 16)
