"""Small systems of linear equations in compiled code, by Cholesky's factors.

Numba's `numpy.linalg` needs SciPy, which the core does without; the systems of the policies have
less than twenty unknowns.
"""

from __future__ import annotations

import math

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit


@njit(cache=True, nogil=True, borrows=True)
def factor(a: Floats) -> bool:
    """Replace the lower triangle of a symmetric matrix by its Cholesky factor L, a = L L'.

    Args:
        a: (n, n), changed in place; the upper triangle is not read.

    Returns:
        False where the matrix is not positive definite, and what is left of it is of no use.
    """
    for i in range(a.shape[0]):
        for k in range(i + 1):
            rest = a[i, k]
            for m in range(k):
                rest -= a[i, m] * a[k, m]
            if k < i:
                a[i, k] = rest / a[k, k]
            elif rest > 0.0:
                a[i, i] = math.sqrt(rest)
            else:
                return False
    return True


@njit(cache=True, nogil=True, borrows=True)
def substitute(factors: Floats, b: Floats) -> None:
    """Solve L L' x = b for the factor that `factor` left.

    Args:
        factors: (n, n), L in its lower triangle.
        b: (n,) right side, replaced by the solution.
    """
    n = b.shape[0]
    for i in range(n):
        for k in range(i):
            b[i] -= factors[i, k] * b[k]
        b[i] /= factors[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            b[i] -= factors[k, i] * b[k]
        b[i] /= factors[i, i]
