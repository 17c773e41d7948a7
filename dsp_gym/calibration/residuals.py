"""How far steady parts are from a model, in units of what is expected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.model import AskedParts, JobModel
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.spec import JobSpec, Vertex

__all__ = ["BUSY_SD", "HIT_SD", "LATENCY_SD", "RATE_SD", "Measured", "doubt"]

RATE_SD, LATENCY_SD, BUSY_SD, HIT_SD = 0.04, 0.35, 0.05, 0.04
"""Expected residuals: relative for rates, logarithmic for latencies, absolute for shares."""
DISTRUST = 1.0
"""What a part's uncertainty is multiplied by where it never became steady."""


class Measured:
    """What steady parts of a job showed, as arrays: made once, compared with many models of it.

    Args:
        spec: the job; its fitted numbers do not matter.
        parts: O of them.
    """

    def __init__(self, spec: JobSpec, parts: Sequence[SteadyPart]) -> None:
        order = spec.topological_order()
        self._asked = AskedParts(spec, parts)
        self._log_rate = np.log([o.rate_per_s for o in parts])[:, None]
        self._busy = _rows([o.busy for o in parts], order)
        stateful = [vertex.state is not None for vertex in order]
        hit, read_us, write_us = (
            np.where(stateful, _rows(rows, order), np.nan)
            for rows in (
                [o.hit for o in parts],
                [o.read_us for o in parts],
                [o.write_us for o in parts],
            )
        )
        self._hit, self._log_read, self._log_write = hit, np.log(read_us), np.log(write_us)
        wide = np.array([doubt(o) for o in parts])[:, None]
        # A drifting rate drags all along with it only where the run never became steady.
        rest = np.where([[o.is_unsteady] for o in parts], wide, 1.0)
        others = np.repeat(rest, 4 * len(order), axis=1)
        self._weight = 1.0 / np.concatenate([wide, others], axis=1)
        seen = (self._log_rate, self._busy, self._hit, self._log_read, self._log_write)
        self._is_seen = ~np.isnan(np.concatenate(seen, axis=1))
        self.of_part = self._is_seen.sum(axis=1)
        """(O,) residuals of each part."""

    def residuals(self, model: JobModel) -> Floats:
        """Seen less predicted, in units of the expected size.

        Args:
            model: of the same job.

        Returns:
            Part by part the rate's, then those of busyness, hit rates and latencies that were
            measured, by vertex in topological order.
        """
        said = model.predict_all(self._asked)
        off = np.concatenate(
            [
                (self._log_rate - np.log(said.rate_per_s)[:, None]) / RATE_SD,
                (self._busy - said.busy) / BUSY_SD,
                (self._hit - said.hit) / HIT_SD,
                (self._log_read - np.log(said.read_us)) / LATENCY_SD,
                (self._log_write - np.log(said.write_us)) / LATENCY_SD,
            ],
            axis=1,
        )
        return np.asarray((off * self._weight)[self._is_seen])


def doubt(o: SteadyPart) -> float:
    """How much wider than usual the errors of a part are expected, from its drift and spread.

    Returns:
        1 for a steady part; its weight in the fit is the inverse square.
    """
    off = o.uncertainty * (DISTRUST if o.is_unsteady else 1.0)
    return math.hypot(RATE_SD, off) / RATE_SD


def _rows(values: Sequence[Mapping[str, float]], order: Sequence[Vertex]) -> Floats:
    """(O, V); NaN where nothing was measured."""
    return np.array([[of.get(vertex.name, np.nan) for vertex in order] for of in values])
