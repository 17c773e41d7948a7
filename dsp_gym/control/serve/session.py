"""A live loop together with what it shows: started, served, and closed as one."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.backends.base import Clock
from dsp_gym.backends.upstream.timed_calls import Workers
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.modes import INCUMBENT, Mode, NamedPolicyConfig
from dsp_gym.control.serve.boards import Boards
from dsp_gym.control.serve.client_memory import CLIENTS, ClientMemory
from dsp_gym.control.serve.decide import Decisions
from dsp_gym.control.serve.liveness import Liveness
from dsp_gym.control.serve.status import StatusBoard
from dsp_gym.control.serve.tokens import Tokens, read_tokens
from dsp_gym.control.start import guarded, guardrails_of, named_policies, started
from dsp_gym.control.turn import Hooks, Turn
from dsp_gym.loop.watchers import keep_watching
from dsp_gym.policies.capabilities import capabilities_of
from dsp_gym.policies.registry import make

if TYPE_CHECKING:
    from dsp_gym.control.serve.server import StatusServer

_COMPILER = "libllvmlite"
_SMAPS = Path("/proc/self/smaps")
_MADV_DONTNEED = 4
_M_ARENA_MAX = -8

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ \S+ +(\S.*)")
_UNSHARED = re.compile(r"(?:Anonymous|Private_Dirty|Shared_Dirty): +(\d+) kB")

PLANNERS = 2
"""Plans made at once: they are compiled code that leaves the interpreter to the other threads."""

KEEP_S, KEEP_SHARE = 5.0, 20.0
"""Seconds between two looks at what has to outlive a restart, also as a multiple of a look."""

SWITCH_S = 0.001
"""Longest wait for the interpreter while another thread computes, s. A plan takes a few ms, and
needs the interpreter five times: with Python's own 5 ms it would mostly wait."""


@dataclass(frozen=True, slots=True)
class Session:
    """A loop, its status, and where that is served."""

    run: JobAutoscaler
    board: StatusBoard
    server: StatusServer | None


@contextmanager
def session(
    config: RunConfig,
    *,
    serve: bool,
    mode: Mode = "shadow",
    substitute: Substitute | None = None,
    journal: Path | None = None,
    durable: bool | None = None,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
) -> Iterator[Session]:
    """Start an autoscaler with its status; arguments as for `started`.

    Args:
        config: what to run.
        serve: whether the status is served over HTTP.
        mode: how far the acting policy may go.
        substitute: a recording or a simulation in place of the configuration's cluster.
        journal: folder of the journal; default: the configuration's.
        durable: whether every decision waits for the disk; None: where something real is decided.
        hooks: receive its turns, and end it.
        clock: Unix seconds, how a real job is waited for, and what ends the run.

    Yields:
        The session, with its journal and server open until the block ends.
    """
    tokens = read_tokens(config.serve.token_file) if serve else None
    with ExitStack() as stack:
        settle, boards = stack.enter_context(starting()), list[StatusBoard]()
        run = stack.enter_context(
            started(
                config,
                mode=mode,
                substitute=substitute,
                journal=journal,
                durable=durable,
                hooks=watched(hooks or Hooks(), boards, settle),
                clock=clock,
            )
        )
        boards.append(StatusBoard(run))
        server = None
        if serve:
            server = stack.enter_context(served(config, Boards(boards[0]), run.acting, tokens))
        yield Session(run, boards[0], server)


def watched(hooks: Hooks, boards: list[StatusBoard], settle: Callable[[], None]) -> Hooks:
    """Show every decision on boards, too.

    Args:
        hooks: receive the decisions next.
        boards: may be filled later.
        settle: called when the interval after a decision has passed.

    Returns:
        Hooks that do both.
    """

    def decided(turn: Turn) -> None:
        for board in boards:
            board.decided(turn)
        hooks.on_decision(turn)

    def passed(turn: Turn) -> None:
        settle()
        for board in boards:
            board.passed()
        hooks.on_turn(turn)

    return replace(hooks, on_decision=decided, on_turn=passed)


@contextmanager
def starting() -> Iterator[Callable[[], None]]:
    """Collect no garbage while the process starts, which makes little.

    Garbage is collected and memory is given back after the first decision of the process, and
    after the second, the fourth, the eighth and so on, since jobs start one after another: it takes
    a fifth of a second without an answer. Objects that survive are exempt from later collections.

    Yields:
        A function to call when the interval after a decision has passed.
    """
    passed, counting = 0, threading.Lock()

    def settle() -> None:
        nonlocal passed
        with counting:
            passed += 1
            if passed & (passed - 1) == 0:  # a power of two
                give_back()
                gc.freeze()
                gc.enable()

    gc.disable()
    share_arenas()
    try:
        yield settle
    finally:
        gc.unfreeze()
        gc.enable()


@contextmanager
def served(
    config: RunConfig, boards: Boards, acting: str, tokens: Tokens | None
) -> Iterator[StatusServer]:
    """Serve everything over HTTP, for as long as the block lasts.

    Args:
        config: address and limits, and the policy that decides on request.
        boards: the loops' status.
        acting: the policy that decides where none is named.
        tokens: of the clients.

    Yields:
        The server, listening; it is closed when the block ends.

    Raises:
        MissingExtraError: What serves over HTTP is not installed.
    """
    # A loop that is not served needs no asyncio, nor httptools.
    from dsp_gym.control.serve.exporter import Exporter
    from dsp_gym.control.serve.server import DECIDERS, StatusServer

    workers = Workers(2 * DECIDERS)  # a request must not take a thread from a loop
    planners = ThreadPoolExecutor(PLANNERS, "dsp-gym plan")
    most_bytes = int(config.serve.history_mib * 2**20)
    decisions = Decisions(
        _makers(config, workers),
        acting,
        config.seed,
        most_bytes=most_bytes,
        memory=None if tokens is None else ClientMemory(config.journal / CLIENTS, most_bytes // 4),
        shared=(workers,),
        later=planners.submit,
    )
    server = StatusServer(
        config.serve, boards, Liveness.of(config), Exporter(boards), decisions, tokens
    )
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    closing = threading.Event()
    if tokens is not None:
        threading.Thread(
            target=keep_watching,
            args=("clients", partial(_keep_clients, decisions, closing), closing),
            name="dsp-gym clients",
            daemon=True,
        ).start()
    try:
        yield server
    finally:
        closing.set()
        sys.setswitchinterval(switch_s)
        server.close()
        planners.shutdown(wait=False, cancel_futures=True)


def _keep_clients(decisions: Decisions, closing: threading.Event) -> None:
    """Put clients' cool-downs on disk every few seconds; less often where that takes long."""
    wait_s = KEEP_S
    while not closing.wait(wait_s):
        begun_s = time.monotonic()
        decisions.save()
        wait_s = max(KEEP_S, KEEP_SHARE * (time.monotonic() - begun_s))


def _makers(config: RunConfig, workers: Workers) -> dict[str, Callable[[], GuardedPolicy]]:
    """List what makes policies for requests: copies, so that the loop's history stays its own."""
    timeout_s = min(config.decide_timeout_s, config.serve.timeout_s)

    def maker(name: str, entry: NamedPolicyConfig) -> Callable[[], GuardedPolicy]:
        def made() -> GuardedPolicy:
            policy = make(entry.policy)
            return guarded(
                config,
                name,
                policy,
                guardrails_of(config, entry),
                timeout_s=None if capabilities_of(policy).memories is not None else timeout_s,
                turn_s=timeout_s,
                workers=workers,
                tells_range=False,
                answers=True,
            )

        return made

    return {
        name: maker(name, entry)
        for name, entry in named_policies(config)
        if entry.policy != INCUMBENT
    }


def share_arenas() -> None:
    """On Linux, let all threads take memory from two arenas.

    By default glibc makes eight for each core, and each keeps what was freed in it: beside 30 jobs
    that is 15 MiB. Threads that wait for servers do not compete for arenas.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):  # glibc
            libc.mallopt(_M_ARENA_MAX, 2)


def give_back() -> None:
    """Collect garbage, and on Linux drop what the process can read again.

    Loading compiled functions reads a good part of LLVM into memory: 70 MB that no decision touches
    again, since decisions run what was loaded. These pages are copies of a file, so the system may
    drop them, and reads them again should they ever be needed.
    """
    gc.collect()
    if sys.platform != "linux" or not _SMAPS.exists():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(ctypes.c_size_t(0))
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for begin, end in clean_mappings(_SMAPS.read_text(), _COMPILER):
        libc.madvise(begin, end - begin, _MADV_DONTNEED)


def clean_mappings(smaps: str, library: str) -> Iterator[tuple[int, int]]:
    """Find the parts of a library in memory that equal its file.

    Args:
        smaps: `/proc/PID/smaps` of a process.
        library: how the name of the file begins.

    Yields:
        First address and the one after the last, of mappings that are not written to and hold no
        page of their own, such as one that was relocated.
    """
    found: tuple[int, int] | None = None
    for line in [*smaps.splitlines(), "0-0 end"]:
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            if found is not None:
                yield found
            mapping = _MAPPING.fullmatch(line)
            is_it = mapping is not None and Path(mapping[3]).name.startswith(library)
            found = (int(mapping[1], 16), int(mapping[2], 16)) if mapping and is_it else None
        elif found is not None and (own := _UNSHARED.match(line)) and int(own[1]) > 0:
            found = None
