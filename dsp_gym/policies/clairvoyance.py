"""The load to come, which only a clairvoyant policy knows. It never travels in a snapshot.

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
    """Between which costs a policy can move, (J,), money over the whole episode."""

    bound: Floats  # nothing that serves every arrival in time costs less
    peak: Floats  # the cheapest fixed configuration that carries the peak


@runtime_checkable
class Foreseeing(Protocol):
    """A policy that must be told the load before it is reset."""

    def foresee(self, jobs: Topology, foresight: Foresight) -> None:
        """Hear what is to come."""


@runtime_checkable
class Bounding(Foreseeing, Protocol):
    """One that can also say what there is to save."""

    def possible(self) -> Possible:
        """Bound and peak of what was foreseen.

        Returns:
            Costs of the whole episode, money, (J,) each.
        """
