"""Machine code on disk is used exactly as long as it matches the sources."""

from __future__ import annotations

import gc
import importlib
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numba import config
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from dsp_gym import compiling
from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit

CALLER = """
from typing import NamedTuple
from {numba} import njit
import limits
from rates import rate

LIMIT = limits.LIMIT

class {inputs}(NamedTuple):
    load: float

@njit(cache=True, nogil=True)
def capped(inputs):
    return min(rate(inputs.load), LIMIT)

def run():
    return capped({inputs}(2.0)), sum(capped.stats.cache_hits.values())
"""
CALLED = """
from dsp_gym.compiling import njit

@njit(nogil=True)
def rate(load):
    return {factor} * load
"""

Run = Callable[..., tuple[float, int]]

needs_numba = pytest.mark.skipif(config.DISABLE_JIT, reason="plain Python compiles nothing")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Writes three modules as one state of the code has them, and runs the first.

    Answers what the compiled function returns, and how often its machine code was on disk.
    """
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(name: str, text: str) -> None:
        file = tmp_path / f"{name}.py"
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    def state(
        inputs: str = "Inputs",
        factor: float = 3.0,
        limit: float = 10.0,
        numba: str = "dsp_gym.compiling",
    ) -> tuple[float, int]:
        write("limits", f"LIMIT = {limit}\n")
        write("rates", CALLED.format(factor=factor))
        write("caller", CALLER.format(inputs=inputs, numba=numba))
        importlib.invalidate_caches()
        answer: tuple[float, int] = importlib.import_module("caller").run()
        return answer

    return state


def test_what_is_unchanged_is_not_compiled_again(run: Run) -> None:
    assert run() == (6.0, 0)
    assert run() == (6.0, 1)


@pytest.mark.parametrize("numba", ["numba", "dsp_gym.compiling"])
def test_a_cache_that_names_a_class_which_is_gone_counts_as_empty(run: Run, numba: str) -> None:
    """An update in place, whether numba itself wrote the cache or we did."""
    assert run(inputs="Inputs", numba=numba) == (6.0, 0)
    assert run(inputs="Load") == (6.0, 0)
    assert run(inputs="Load") == (6.0, 1)


ALONE = """
from dsp_gym.compiling import njit

@njit(cache=True)
def inner(x):
    return x + 1.0

@njit(cache=True)
def outer(x):
    total = 0.0
    for i in range(10):
        total += inner(x) * i
    return total

assert outer(1.0) == 90.0
print(sum(outer.stats.cache_misses.values()))
"""


@needs_numba
def test_processes_that_need_a_function_at_the_same_time_compile_it_once(tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    started = [
        subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert sorted(process.communicate()[0].strip() for process in started) == ["0", "1"]


def test_a_cache_that_was_cut_short_counts_as_empty(run: Run, tmp_path: Path) -> None:
    run()
    (index,) = tmp_path.rglob("*.nbi")
    index.write_bytes(index.read_bytes()[:-9])
    assert run() == (6.0, 0)


def test_a_change_of_a_called_function_in_another_file_is_seen(run: Run) -> None:
    assert run(factor=3.0) == (6.0, 0)
    assert run(factor=4.0) == (8.0, 0)


def test_a_change_of_a_constant_in_another_file_is_seen(run: Run) -> None:
    assert run(limit=10.0) == (6.0, 0)
    assert run(limit=5.0) == (5.0, 0)


def test_a_first_compilation_says_so_once_and_what_is_on_disk_does_not(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    compiling._log_once.cache_clear()
    run(factor=5.0)
    run(factor=6.0)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "compiling numeric code" in caplog.text
    caplog.clear()
    compiling._log_once.cache_clear()
    run(factor=6.0)
    assert caplog.text == ""


PARTS = """
from dsp_gym.compiling import njit

@njit(inline="always")
def inlined(x):
    return x - 1.0

@njit()
def inner(x):
    return inlined(x) + 1.0

@njit(cache=True)
def outer(x):
    return inner(x) * 2.0

@njit(cache=True)
def other(x):
    return inner(x) * 3.0
"""

CALLS = """
import os, sys
from dsp_gym.compile_bar import ask_for_compile_bar
{before}
import parts
assert (parts.outer(1.0), parts.other(1.0)) == (2.0, 3.0)
os.write(1, b"done")
"""

DRAWN = """
from rich.progress import TextColumn
from dsp_gym.cli.progress import bar
ask_for_compile_bar()
shown = bar(TextColumn("{task.description}"))
live = shown.__enter__()
live.add_task("of the command")
"""


def on_terminal(folder: Path, before: str = "ask_for_compile_bar()", after: str = "") -> list[str]:
    """Run calls with a terminal as stderr; what it shows, a line of text for each redraw."""
    parts, script = folder / "parts.py", folder / "script.py"
    if not parts.exists():
        parts.write_text(PARTS)
    script.write_text(CALLS.format(before=before) + after)
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=theirs, env=env, text=True
    ) as process:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # a terminal that nobody holds any more
            while part := os.read(ours, 4096):
                seen += part
        assert process.communicate()[0].split() == ["done"]
    os.close(ours)
    assert process.returncode == 0, seen.decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


@needs_numba
def test_a_terminal_shows_how_many_functions_of_what_was_called_are_compiled(tmp_path) -> None:
    seen = on_terminal(tmp_path)
    shape = r"compiling parts once, then kept \S+ (\d) of (\d) functions 0:00:\d\d"
    counts = [(int(n), int(of)) for n, of in (re.fullmatch(shape, one).groups() for one in seen)]
    assert counts[0] == (0, 2)  # outer and inner: the third is inlined
    assert (2, 2) in counts
    assert counts[-1] == (3, 3)  # with the next call, of which one is ready
    assert counts == sorted(counts)


@needs_numba
def test_what_is_on_disk_shows_no_bar(tmp_path) -> None:
    assert on_terminal(tmp_path)
    assert on_terminal(tmp_path) == []


@needs_numba
@pytest.mark.parametrize(
    "before",
    ["", "ask_for_compile_bar(); os.fork() and (os.wait(), os._exit(0))"],
    ids=["a library", "a worker"],
)
def test_who_did_not_ask_for_a_bar_writes_the_line(tmp_path, before) -> None:
    (line,) = on_terminal(tmp_path, before)
    assert line.startswith("compiling numeric code that no command has used")


@needs_numba
def test_a_pipe_gets_the_line_alone(tmp_path) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    script = tmp_path / "script.py"
    script.write_text(CALLS.format(before="ask_for_compile_bar()"))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.endswith("up to a minute, then kept")


@needs_numba
def test_the_bar_joins_that_of_a_command(tmp_path) -> None:
    seen = on_terminal(tmp_path, DRAWN, "live.refresh(); shown.__exit__(None, None, None)")
    (both,) = {seen[at - 1] for at, line in enumerate(seen) if line.startswith("compiling parts")}
    assert both == "of the command"
    assert seen[-1] == "of the command"  # the command draws its bar to the end


def test_collection_of_garbage_goes_on_after_a_function_that_does_not_compile() -> None:
    @njit()
    def wrong(x: float) -> float:
        return x.missing  # type: ignore[attr-defined, no-any-return]  # that is the point

    assert gc.isenabled()
    with pytest.raises((NumbaError, AttributeError)):
        wrong(1.0)
    assert gc.isenabled()


def test_a_function_that_borrows_its_arrays_counts_no_references() -> None:
    def total(values: Floats) -> float:
        found = 0.0
        for i in range(len(values)):
            if values[i] < 0.0:
                return -1.0
            found += doubled(values, i)
        return found

    @njit(inline="always")
    def doubled(values: Floats, i: int) -> float:
        return 2.0 * values[i]

    made = njit(borrows=True)(total)
    assert made(np.array([1.0, 2.0])) == 6.0
    if isinstance(made, Dispatcher):
        assert not any("NRT_incref" in text for text in made.inspect_llvm().values())


@pytest.mark.skipif(config.DISABLE_JIT, reason="plain Python allocates as it likes")
def test_a_function_that_borrows_its_arrays_can_make_none() -> None:
    @njit(borrows=True)
    def made(size: int) -> float:
        return float(np.zeros(size).sum())

    with pytest.raises(NumbaError, match="returning of array"):
        made(3)
