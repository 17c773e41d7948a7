"""A small autoscaler in Java that calls the operator's plugin in the operator's order."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from dsp_gym.backends.flink.local.distribution import find_java, find_libraries
from tests.real_flink import SHORT_LIVED

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "operator-plugin"

EVALUATOR = "dspgym.operator.DspGymEvaluator"
EXECUTOR = "dspgym.operator.DspGymExecutor"
SERVICES = {
    "org.apache.flink.autoscaler.metrics.ScalingMetricsEvaluatorPlugin": EVALUATOR,
    "org.apache.flink.autoscaler.ScalingExecutorPlugin": EXECUTOR,
}
AUTOSCALER = "job.autoscaler."
OWN = f"{AUTOSCALER}metrics.custom-evaluator.gym."
TOKEN = "0123456789abcdef0123456789abcdef"

SOURCE, MAP, SINK = (f"{number:032x}" for number in (0xA1, 0xB2, 0xC3))
NEEDED = {
    "scaling.parallelism-alignment.mode": "OFF",
    "scale-down.interval": "0 s",
    "scale-down.max-factor": "1.0",
    "scaling.custom-executors": "gym",
    "scaling.custom-executor.gym.class": EXECUTOR,
}
"""What mode policy does not start without."""

WINDOW_S, STEP_S = 900, 60

Cycle = dict[str, Any]


class Classes(NamedTuple):
    """What javac made."""

    provided: Path  # the declarations
    plugin: Path  # what the jar holds
    chain: Path  # the interface of evaluators that an operator with a chain of them has
    test: Path


def tool(name: str) -> str:
    """A tool of the JDK beside the Java that is found."""
    beside = find_java().path.with_name(name)
    return str(beside) if beside.exists() else name


def compiled(folder: Path) -> Classes:
    """Compile declarations, plugin and test program, each against what it may see."""
    made = Classes(*(folder / name for name in Classes._fields))
    flink = find_libraries().class_path
    given, newer = str(made.provided), str(made.chain)
    for part, sources, seen in (
        (made.provided, "declarations", [flink]),
        (made.plugin, "src", [flink, given]),
        (made.chain, "declarations-chain", [flink, given]),
        (made.test, "test", [flink, newer, given, str(made.plugin)]),
    ):
        files = [str(path) for path in sorted((FOLDER / sources).rglob("*.java"))]
        done = subprocess.run(
            [
                tool("javac"),
                "-J-XX:TieredStopAtLevel=1",
                *("--release", "17", "-proc:none", "-Xlint:all,-path", "-Werror"),
                *("-d", str(part), "-cp", ":".join(seen), *files),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    shutil.copytree(FOLDER / "src" / "META-INF", made.plugin / "META-INF")
    return made


def jar(classes: Classes, target: Path) -> Path:
    """The plugin as it is shipped."""
    target.parent.mkdir(parents=True, exist_ok=True)
    line = [tool("jar"), "--create", "--file", str(target), "-C", str(classes.plugin), "."]
    subprocess.run(line, check=True)
    return target


class Autoscaler:
    """A running loop; the plugin is loaded from a plugins folder, by Flink's plugin manager."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.discovered: list[list[str]] = self._read()

    def run(self, *cycles: Cycle) -> list[dict[str, Any]]:
        """What cycles did that were begun at once."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(cycles) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> list[Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the loop has ended"
        return json.loads(line)


@contextmanager
def autoscaler(classes: Classes, folder: Path, *, has_chain: bool = False) -> Iterator[Autoscaler]:
    """Start the loop with the plugin installed as in the operator's image.

    Args:
        classes: what was compiled; the plugin against the interfaces of 1.16.0.
        folder: for everything.
        has_chain: whether the operator calls all configured evaluators by their priority
            (FLINK-39554); False: the first alone, as 1.16.0.
    """
    jar(classes, folder / "plugins" / "dsp-gym" / "dsp-gym-operator-plugin.jar")
    shutil.copytree(classes.test, folder / "test", dirs_exist_ok=True)
    own = folder / "test" / "dspgym" / "operator"  # the test program reads JSON, too
    shutil.copy(classes.plugin / "dspgym" / "operator" / "Json.class", own)
    newer = f"{classes.chain}:" if has_chain else ""
    path = f"{folder / 'test'}:{newer}{classes.provided}:{find_libraries().class_path}"
    found = find_java()
    line = [
        str(found.path),
        *found.flags,
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",  # beside other tests, time for better code is time for answers
        "-Dorg.apache.logging.log4j.level=WARN",
        "-cp",
        path,
        "dspgym.operator.LoopMain",
    ]
    env = {**os.environ, **SHORT_LIVED, "FLINK_PLUGINS_DIR": str(folder / "plugins")}
    with (folder / "loop.log").open("w") as log:
        process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=env
        )
    try:
        yield Autoscaler(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


@dataclass
class FakeGym:
    """Answers POST /v1/decide as a test wants it, and keeps what it was asked."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    answer: Callable[[dict[str, Any]], tuple[int, bytes]] = lambda snapshot: (200, b"")


@contextmanager
def fake_gym() -> Iterator[FakeGym]:
    """A server of one's own answers."""
    made = FakeGym()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            snapshot = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            made.asked.append(snapshot)
            made.paths.append(self.path)
            made.tokens.add(self.headers["Authorization"])
            status, body = made.answer(snapshot)
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the client has gone

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def deciding(wanted: Mapping[str, int], **more: Any) -> Callable[[dict[str, Any]], Any]:
    """Answers with a parallelism of some vertices; the others stay."""

    def answer(snapshot: dict[str, Any]) -> tuple[int, bytes]:
        vertices = [
            {
                "name": vertex["name"],
                "parallelism": wanted.get(vertex["name"], vertex["parallelism"]),
                "memory_level": -1,
            }
            for vertex in snapshot["vertices"]
        ]
        found = {
            "schema": "dsp-gym/decision/1",
            "job": snapshot["job"],
            "t_s": snapshot["t_s"],
            "changed": True,
            "reason": "as the test wants",
            "vertices": vertices,
            **more,
        }
        return 200, json.dumps(found).encode()

    return answer


def vertex(
    name: str,
    inputs: Sequence[str] = (),
    *,
    tasks: int = 4,
    rate: float = 8000.0,
    out: float | None = None,
    busy: float = 0.5,
    ship: str = "REBALANCE",
    **more: Any,
) -> dict[str, Any]:
    """A vertex, and what it does all the time."""
    return {
        "id": name,
        "inputs": dict.fromkeys(inputs, ship),
        "parallelism": tasks,
        "max_parallelism": 128,
        "rates": {
            "NUM_RECORDS_IN": rate,
            "NUM_RECORDS_OUT": rate if out is None else out,
            "ACCUMULATED_BUSY_TIME": 1000.0 * busy * tasks,
        },
        "gauges": {"LOAD": busy, **({} if inputs else {"LAG": 0.0})},
        **more,
    }


CHAIN = (vertex(SOURCE), vertex(MAP, [SOURCE]), vertex(SINK, [MAP], ship="HASH"))


def cycle(
    conf: Mapping[str, str],
    vertices: Sequence[Mapping[str, Any]] = CHAIN,
    *,
    job: str = "flink/orders",
    t_s: float = 1_700_000_000.0,
    since_s: float | None = None,
    **more: Any,
) -> Cycle:
    """A cycle of a job whose rates have been the same since it runs (default: 25 minutes)."""
    times = [t_s - WINDOW_S + STEP_S * k for k in range(WINDOW_S // STEP_S + 1)]
    since_s = times[0] - 600 if since_s is None else since_s
    history = [
        {
            "t_s": at,
            "vertices": {
                one["id"]: {
                    **{name: rate * (at - since_s) for name, rate in one["rates"].items()},
                    **one["gauges"],
                }
                for one in vertices
            },
        }
        for at in times
        if at >= since_s
    ]
    return {
        "job": job,
        "conf": {AUTOSCALER + key: value for key, value in conf.items()},
        "vertices": [dict(one) for one in vertices],
        "history": history,
        "running_since_s": since_s,
        "restart_s": 300,
        "full": True,
        **more,
    }


def options(url: str, token_file: Path, mode: str, **more: str) -> dict[str, str]:
    """Keys below job.autoscaler. that select the plugin, and those that its mode needs."""
    own = {
        "class": EVALUATOR,
        "mode": mode,
        "url": url,
        "token-file": str(token_file),
        "timeout": "1 s",
        **more,
    }
    return {
        "metrics.custom-evaluators": "gym",
        **{f"metrics.custom-evaluator.gym.{key}": value for key, value in own.items()},
        **(NEEDED if mode == "policy" else {}),
    }


def forecast(rate: float, error: float | None = 0.1) -> dict[str, Any]:
    found = {"records_in_per_s": rate, "horizon_s": 1200.0, "quantile": 0.9, "error": error}
    return {"forecast": found}


def written_token(folder: Path) -> Path:
    file = folder / "token"
    file.write_text(f"operator {TOKEN}\n")
    return file


def warmed(loop: Autoscaler, folder: Path) -> Autoscaler:
    """Beside other tests, the first cycles of a JVM, which load classes, take over a second."""
    with fake_gym() as gym:
        gym.answer = deciding({MAP: 9}, **forecast(24_000))
        token = written_token(folder)
        for k, mode in enumerate(("observe", "forecast", "policy") * 3):
            at_s = 1_700_000_000.0 + 60 * k
            loop.run(cycle(options(gym.url, token, mode), job=f"flink/first-{mode}", t_s=at_s))
    return loop
