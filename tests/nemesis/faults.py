"""How each kind of fault begins and ends."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.nemesis.schedule import REPLICAS, Fault
from tests.nemesis.world import World

__all__ = ["begin", "end"]

Action = Callable[[World, Fault], None]


def begin(world: World, fault: Fault) -> None:
    """Let it happen."""
    _BEGINS[fault.kind](world, fault)


def end(world: World, fault: Fault) -> None:
    """Let it be over."""
    _ENDS[fault.kind](world, fault)


def _kill(world: World, fault: Fault) -> None:
    if fault.target in REPLICAS:
        world.replicas[fault.target].kill(fault.lasts_s)
    else:
        world.signal(fault.target, signal.SIGKILL)


def _start(world: World, fault: Fault) -> None:
    if fault.target not in REPLICAS:
        world.start_parts()


def _freeze(world: World, fault: Fault) -> None:
    if fault.target in REPLICAS:
        world.replicas[fault.target].freeze(frozen=True)
    else:
        world.signal(fault.target, signal.SIGSTOP)


def _wake(world: World, fault: Fault) -> None:
    if fault.target in REPLICAS:
        world.replicas[fault.target].freeze(frozen=False)
    else:
        world.signal(fault.target, signal.SIGCONT)


def _trouble_link(world: World, fault: Fault) -> None:
    world.links[fault.target].become(fault.kind, fault.value)


def _mend_link(world: World, fault: Fault) -> None:
    world.links[fault.target].become("open")


_BEGINS: dict[str, Action] = {
    "kill": _kill,
    "freeze": _freeze,
    **dict.fromkeys(("cut", "hold", "delay", "deaf"), _trouble_link),
    "disk": lambda world, fault: world.replicas[fault.target].fill_disk(round(fault.value)),
    "clock": lambda world, fault: world.replicas[fault.target].step(fault.value),
}
_ENDS: dict[str, Action] = {
    "kill": _start,
    "freeze": _wake,
    **dict.fromkeys(("cut", "hold", "delay", "deaf"), _mend_link),
    "disk": lambda world, fault: world.replicas[fault.target].fill_disk(None),
    "clock": lambda world, fault: world.replicas[fault.target].step(0.0),
}
