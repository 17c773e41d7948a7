"""Counter-based random numbers: the same draw whatever the batch size, thread or order.

Philox4x32-7 (Salmon et al., SC 2011, Crush-resistant from 7 rounds), keyed by (seed, job,
mechanism): each job has a seed, so its place in the batch does not matter.
"""

from __future__ import annotations

import numpy as np

from dsp_gym.compiling import njit

NOISE, LOSS, OUTAGE, FAULT = 1, 2, 3, 4
"""Mechanisms; each draws from a separate stream."""

# Multipliers M and Weyl increments W of Philox4x32 (Salmon et al., Table 2 and Section 3). They are
# uint64 values of 32 bits: numba would widen int x uint64 to float64.
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@njit(cache=True, nogil=True, forceinline=True)
def philox(seed: int, mechanism: int, a: int, b: int) -> tuple[np.uint64, np.uint64]:
    """Return 128 random bits of counter (a, b) as two 64-bit words.

    Returns:
        Two words; equal arguments give equal words.
    """
    # k0, k1 is the key, c0..c3 the counter, each 32 bits in a 64-bit word: the products p0, p1 then
    # hold high and low half at once.
    s = np.uint64(seed)
    k0, k1 = s & _LOW, ((s >> _HALF) ^ (np.uint64(mechanism) * np.uint64(0x9E3779B1))) & _LOW
    c0, c1 = np.uint64(a) & _LOW, np.uint64(a) >> _HALF
    c2, c3 = np.uint64(b) & _LOW, np.uint64(b) >> _HALF
    for _ in range(7):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return (c0 << _HALF) | c1, (c2 << _HALF) | c3


@njit(cache=True, nogil=True, forceinline=True)
def uniform(word: np.uint64) -> float:
    """Return a number in [0, 1) from 64 random bits.

    Returns:
        A multiple of 2^-53.
    """
    # The upper 53 bits fill a double's mantissa exactly; 9007199254740992 = 2^53.
    return float(word >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True, forceinline=True)
def normal(word: np.uint64) -> float:
    """Return a nearly standard normal number from 64 random bits: four uniforms (Irwin-Hall).

    It is bounded at +-3.5 standard deviations, as noise on a metric should be.

    Returns:
        A number of mean 0 and variance near 1, within +-3.5.
    """
    mask = np.uint64(0xFFFF)
    total = float(word & mask) + float((word >> np.uint64(16)) & mask)
    total += float((word >> np.uint64(32)) & mask) + float(word >> np.uint64(48))
    # A sum of four uniforms has mean 2 and variance 4/12; sqrt(3) scales that to 1.
    return (total / 65535.0 - 2.0) * 1.7320508075688772


@njit(cache=True, nogil=True, forceinline=True)
def low_normal(word: np.uint64) -> float:
    """Return the same from the lower half of the bits: two uniforms, bounded at +-2.4.

    Returns:
        A number of mean 0 and variance near 1, within +-2.4.
    """
    mask = np.uint64(0xFFFF)
    total = float(word & mask) + float((word >> np.uint64(16)) & mask)
    # A sum of two uniforms has mean 1 and variance 2/12; sqrt(6) scales that to 1.
    return (total / 65535.0 - 1.0) * 2.449489742783178


@njit(cache=True, nogil=True, forceinline=True)
def high_normal(word: np.uint64) -> float:
    """Return the same from the upper half.

    Returns:
        A number of mean 0 and variance near 1, within +-2.4.
    """
    return low_normal(word >> np.uint64(32))
