"""The true outcome of an interval; a collector's metrics stand apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np

from dsp_gym.arrays import Column, Floats, columns_of


@dataclass(frozen=True, eq=False)
class Outcome:
    """The truth over an interval; each field is one row of the table of quantities."""

    seconds: Annotated[Floats, Column("J", "s", "length of the interval")]
    slo_s: Annotated[
        Floats,
        Column("J", "s", "p95 latency above the bound, or job down"),
    ]
    down_s: Annotated[Floats, Column("J", "s", "the job was down")]
    latency_p95_s: Annotated[Floats, Column("J", "s", "mean over the seconds")]
    latency_max_s: Annotated[Floats, Column("J", "s", "highest of the seconds")]
    arrived: Annotated[Floats, Column("J", "records", "offered")]
    processed: Annotated[Floats, Column("J", "records", "taken from the log")]
    pending: Annotated[Floats, Column("J", "records", "in the log at the end")]
    pending_s: Annotated[
        Floats,
        Column("J", "s", "pending in seconds of arrivals, at least 0.1 x reference rate"),
    ]
    core_s: Annotated[Floats, Column("J", "core s", "requested")]
    mib_s: Annotated[Floats, Column("J", "MiB s", "requested")]
    tm_s: Annotated[Floats, Column("J", "TaskManager s", "provisioned")]
    cost: Annotated[Floats, Column("J", "money", "requested")]
    cost_provisioned: Annotated[Floats, Column("J", "money", "whole TaskManagers")]
    rescales: Annotated[Floats, Column("J", "", "asked for in this interval")]
    failures: Annotated[Floats, Column("J", "", "task failures in this interval")]

    @classmethod
    def of_columns(cls, columns: Floats) -> Outcome:
        """Wrap a block of quantities.

        Args:
            columns: (J, quantities), in the order of the table; the outcome shares them.

        Returns:
            The same by name, each (J,).
        """
        # Sixteen arrays would be made at every step of an environment; most are never read.
        outcome = object.__new__(cls)
        vars(outcome)["columns"] = columns
        return outcome

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """Make the view of a quantity when it is first read."""
            if name not in OUTCOME_PLACES:
                raise AttributeError(name)
            view = vars(self)[name] = self.columns[:, OUTCOME_PLACES[name]]
            return view

    @cached_property
    def columns(self) -> Floats:
        """The quantities as a block (J, quantities), in the order of the table."""
        packed = np.stack([getattr(self, name) for name in OUTCOME_FIELDS], axis=1)
        return np.ascontiguousarray(packed, dtype=np.float64)

    @classmethod
    def joined(cls, parts: Sequence[Outcome]) -> Outcome:
        """Join consecutive outcomes to one.

        Returns:
            The sum of every quantity, but the largest of `latency_max_s`.
        """
        # All quantities are sums over seconds, weighted means included, but the maximum.
        found = {n: np.sum([getattr(p, n) for p in parts], axis=0) for n in OUTCOME_FIELDS}
        found["latency_max_s"] = np.max([p.latency_max_s for p in parts], axis=0)
        return cls(**found)


OUTCOME_FIELDS = tuple(name for name, _, _ in columns_of(Outcome))
"""Names of the quantities in the order of the fields."""

OUTCOME_PLACES = {name: place for place, name in enumerate(OUTCOME_FIELDS)}
"""Column of each quantity in a block of outcomes."""
