"""How each kind of fault begins and ends."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.nemesis.pending import Crash, Pending, RivalsWrite, Rotation
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


def _crash(world: World, fault: Fault) -> Crash:
    return Crash(world.replicas[fault.target], world.tails[fault.target], fault)


def _add(make: Callable[[World, Fault], Pending]) -> Action:
    def begin(world: World, fault: Fault) -> None:
        world.pending[fault] = make(world, fault)

    return begin


def _finish(world: World, fault: Fault) -> None:
    if (one := world.pending.pop(fault, None)) is not None:
        one.finish()


_OF_LINKS = ("cut", "hold", "delay", "deaf", "drip", "lie", "close")
_BEGINS: dict[str, Action] = {
    "kill": _kill,
    "freeze": _freeze,
    **dict.fromkeys(_OF_LINKS, _trouble_link),
    "disk": lambda world, fault: world.replicas[fault.target].fill_disk(round(fault.value)),
    "clock": lambda world, fault: world.replicas[fault.target].step(fault.value),
    "crash": _add(lambda world, fault: _crash(world, fault)),
    "token": _add(lambda world, fault: Rotation(world.accounts[fault.target], fault)),
    "rival": _add(lambda world, fault: RivalsWrite(world.rivals[fault.target], fault)),
}
_ENDS: dict[str, Action] = {
    "kill": _start,
    "freeze": _wake,
    **dict.fromkeys(_OF_LINKS, _mend_link),
    "disk": lambda world, fault: world.replicas[fault.target].fill_disk(None),
    "clock": lambda world, fault: world.replicas[fault.target].step(0.0),
    **dict.fromkeys(("crash", "token", "rival"), _finish),
}
