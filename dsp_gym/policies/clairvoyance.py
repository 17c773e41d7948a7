"""The load to come, known to clairvoyant policies alone. It never travels in a snapshot.

An evaluation knows the load and hands it to the policies that declare `foresee`. A live loop does
not, so such a policy can be neither fallback, floor nor teacher.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from dsp_gym.arrays import Floats
from dsp_gym.loop.topology import Topology

__all__ = ["Bounding", "Foreseeing", "Foresight", "Possible"]


class Foresight(NamedTuple):
    """The load of every job of a batch, second by second from the start of the episode."""

    rates_per_s: Floats  # (J, T) records/s offered to the whole job
    interval_s: int  # seconds between decisions


class Possible(NamedTuple):
    """The range of costs of a policy, (J,), money over the whole episode."""

    bound: Floats  # no policy that serves every arrival in time costs less
    peak: Floats  # the cheapest fixed configuration that carries the peak


@runtime_checkable
class Foreseeing(Protocol):
    """A policy that must know the load before it is reset."""

    def foresee(self, jobs: Topology, foresight: Foresight) -> None:
        """Take in the load to come."""


@runtime_checkable
class Bounding(Foreseeing, Protocol):
    """A clairvoyant policy that also computes the range of possible costs."""

    def possible(self) -> Possible:
        """Compute bound and peak of the foreseen load.

        Returns:
            Costs of the whole episode, money, (J,) each.
        """
