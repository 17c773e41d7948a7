"""The growth of a vertex's rate with parallelism: efficiency, and the hottest subtask."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.job.spec import Efficiency, Vertex


def share_kept(form: str, a: float, b: float, q: Floats) -> Floats:
    """Return the share of linear scaling a form keeps at parallelism q, from its bare parameters.

    Returns:
        Shares, 0..1, of the shape of q.

    >>> share_kept("usl", 0.1, 0.0, np.array([1.0, 11.0])).tolist()
    [1.0, 0.5]
    """
    # The forms of `spec.Efficiency`; usl is Gunther's universal scalability law, 2007.
    if form == "power":
        return np.asarray(q**-a)
    if form in ("contention", "few_keys"):
        return np.asarray(b + (1 - b) / (1 + a * (q - 1)))
    if form == "usl":
        return np.asarray(1 / (1 + a * (q - 1) + b * q * (q - 1)))
    return np.ones_like(q)


def efficiency(form: Efficiency, p: Ints) -> Floats:
    """Return the share of linear scaling kept at parallelism p; 1 at p = 1, never increasing.

    Returns:
        Shares, 0..1, of the shape of p.

    >>> efficiency(Efficiency(form="power", a=0.5), np.array([1, 4])).tolist()
    [1.0, 0.5]
    """
    return share_kept(form.form, form.a, form.b, p.astype(np.float64))


def useful_tasks(form: Efficiency, p: Ints) -> Floats:
    """Return linear-equivalent tasks p * e(p), made non-decreasing: more tasks never slow it.

    Returns:
        Tasks, of the shape of p.
    """
    return np.asarray(np.maximum.accumulate(p * efficiency(form, p)))


def hottest_share(vertex: Vertex, p: Ints) -> Floats:
    """Return the load of the hottest subtask over the mean at parallelism p, at least 1.

    Key groups are spread as Flink spreads them: a subtask holds ceil or floor of groups / p. The
    most popular key of a Zipf law, or few distinct keys, bound it further: one key is always on one
    subtask.

    Returns:
        Factors of the shape of p.
    """
    groups = vertex.max_parallelism
    q = np.minimum(p, groups).astype(np.float64)
    share = np.ceil(groups / q) / groups  # of the whole load, on the fullest subtask
    if vertex.distinct_keys is not None:
        share = np.maximum(share, np.ceil(vertex.distinct_keys / q) / vertex.distinct_keys)
    if vertex.state is not None and vertex.state.popularity.form == "zipf":
        share = np.maximum(share, _top_key(vertex.state.keys, vertex.state.popularity.exponent))
    return np.asarray(np.maximum(1.0, share * p))


@lru_cache(maxsize=8192)
def _top_key(keys: float, exponent: float) -> float:
    """Return the share of all accesses that go to the most popular key of a Zipf law."""
    # The k-th key has popularity k^-exponent over the generalised harmonic number.
    n = np.arange(1, int(min(keys, 1e5)) + 1, dtype=np.float64)
    harmonic = float(np.sum(n**-exponent))
    if keys > n[-1]:  # integral of the tail
        tail = (
            np.log(keys / n[-1])
            if exponent == 1
            else ((keys ** (1 - exponent) - n[-1] ** (1 - exponent)) / (1 - exponent))
        )
        harmonic += float(tail)
    return 1 / harmonic
