"""A live loop together with what it shows: started, served, and closed as one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.shadow import Shadows
from dsp_gym.live.config import RunConfig
from dsp_gym.live.modes import INCUMBENT
from dsp_gym.live.run import LiveRun, Turn
from dsp_gym.live.seat import Seat
from dsp_gym.live.start import guardrails_of, named_seats, started
from dsp_gym.policies.registry import make
from dsp_gym.shadow.decide import Decisions
from dsp_gym.shadow.exporter import Exporter
from dsp_gym.shadow.server import StatusServer, read_token
from dsp_gym.shadow.status import StatusBoard

__all__ = ["Session", "session"]


@dataclass(frozen=True, slots=True)
class Session:
    """A loop, its status, and where that is served."""

    run: LiveRun
    board: StatusBoard
    server: StatusServer | None


@contextmanager
def session(
    config: RunConfig,
    *,
    serve: bool,
    on_decision: Callable[[Turn], None] | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    **rest: Any,
) -> Iterator[Session]:
    """A loop that is ready to decide, with its status; `rest` goes to `started`.

    Args:
        config: what to run.
        serve: whether it is served over HTTP.
        on_decision: called with every decision when it was made.
        on_turn: called with every decision when its interval has passed.
    """
    token = read_token(config.serve) if serve else None
    shown: list[Session] = []

    def decided(turn: Turn) -> None:
        for one in shown:
            one.board.decided(turn)
            if one.server is not None:
                one.server.beat()
        if on_decision is not None:
            on_decision(turn)

    with ExitStack() as stack:
        run = stack.enter_context(started(config, on_decision=decided, on_turn=on_turn, **rest))
        board, server = StatusBoard(run, run.managed), None
        if serve:
            decisions = Decisions(_makers(config), run.acting, config.seed)
            server = StatusServer(config.serve, board, Exporter(board), decisions, token)
            stack.callback(server.close)
        shown.append(Session(run, board, server))
        # What was loaded so far stays for good: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        yield shown[0]


def _makers(config: RunConfig) -> dict[str, Callable[[], Seat]]:
    """Seats for decisions on request: copies, so that the loop's own history stays its own."""

    def maker(name: str, seat: Any) -> Callable[[], Seat]:
        def made() -> Seat:
            policy = make(seat.policy)
            own = None if config.fallback is None else Shadows().of(config.fallback, "run")
            return Seat(
                policy, build_for(policy, guardrails_of(config, seat)), name=name, replacement=own,
                timeout_s=min(config.decide_timeout_s, config.serve.timeout_s),
            )  # fmt: skip

        return made

    return {
        name: maker(name, seat) for name, seat in named_seats(config) if seat.policy != INCUMBENT
    }
