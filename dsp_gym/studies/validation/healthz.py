"""How long `/healthz` takes on its own port while the other port is under attack.

    python -m dsp_gym.studies.validation.healthz [--seconds 60] [--out FILE.json]

`dsp-gym shadow` serves a simulated job in a process of its own and decides once a second. Another
process plays one attack after the other against its main port (`validation.attacks`). This one asks
`/healthz` on the probe port every 20 ms over a new connection, as kubelet does. A time counts from
the moment at which the probe was due, so that a server that stands still for a second spoils fifty
probes and not one. All three share as many cores as are asked for.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
import yaml

from dsp_gym.backends.flink.local.processes import free_ports
from dsp_gym.errors import DspGymError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.wire import snapshot_to_json
from dsp_gym.studies.bench.clients import T_S
from dsp_gym.studies.bench.policies import recorded
from dsp_gym.studies.runner import OutOption, dsp_gym, run, write_figures
from dsp_gym.studies.validation.attacks import ATTACKS, AttackedPort, play
from dsp_gym.studies.validation.attacks import JOB as ATTACKED

JOB, LOAD = "flink-wordcount", "diurnal-bursts"
PERIOD_S = 0.02
BAR_MS = 100.0
"""Of the 99th percentile."""

_TOKEN = "attacks-attacks-attacks"
_HOST = "127.0.0.1"
_LONGEST_S = 10.0
_START_S = 120.0
_SETTLE_S = 0.5
"""Between two attacks, in which the server closes what the last one left open."""


class ProbeTime(NamedTuple):
    """One question, and what came of it."""

    took_s: float  # from the moment at which it was due
    status: int  # of HTTP; 0: there was no answer


def probed(port: int, seconds: float, period_s: float = PERIOD_S) -> list[ProbeTime]:
    """Ask `/healthz` again and again.

    Args:
        port: of the probes.
        seconds: how long.
        period_s: between two moments at which a probe is due.

    Returns:
        What each took, from the moment at which it was due.
    """
    begun_s, found = time.perf_counter(), list[ProbeTime]()
    for number in range(max(1, round(seconds / period_s))):
        due_s = begun_s + number * period_s
        time.sleep(max(0.0, due_s - time.perf_counter()))
        status = _status(port)
        found.append(ProbeTime(time.perf_counter() - due_s, status))
    return found


def summary(probes: Sequence[ProbeTime], began: int) -> dict[str, object]:
    """Sum up the probes beside one attack.

    Args:
        probes: all of them.
        began: requests or connections of the attack.

    Returns:
        Percentiles in ms, and whether the bar holds: every probe was answered, 99 % in time.
    """
    took_ms = 1000.0 * np.array([probe.took_s for probe in probes])
    p50, p99 = (float(value) for value in np.percentile(took_ms, (50, 99)))
    unanswered = sum(probe.status != 200 for probe in probes)
    return {
        "probes": len(probes),
        "unanswered": unanswered,
        "p50_ms": round(p50, 2),
        "p99_ms": round(p99, 2),
        "max_ms": round(float(took_ms.max()), 2),
        "attacks": began,
        "holds": unanswered == 0 and p99 <= BAR_MS,
    }


def main(
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each attack lasts, s.")] = 60.0,
    cores: Annotated[int, typer.Option(min=1, help="Cores that all processes share.")] = 2,
    only: Annotated[str | None, typer.Option(help="The one attack to play. Default: all.")] = None,
    out: OutOption = None,
) -> None:
    """Measure /healthz on its own port while the main port is under attack, attack by attack.

    Serves a simulated job with dsp-gym shadow, attacks its main port from another process, asks
    /healthz every 20 ms, and writes p50, p99 and maximum in ms for each attack. Ends with 1 where
    a probe was not answered or p99 is above 100 ms.
    """
    if only is not None and only not in ATTACKS:
        raise typer.BadParameter(f"{only!r} is none of: {', '.join(ATTACKS)}")
    if hasattr(os, "sched_setaffinity"):  # children inherit it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    spawn, rows = multiprocessing.get_context("spawn"), {}
    with _served() as (target, probe_port), ProcessPoolExecutor(1, mp_context=spawn) as other:
        other.submit(play, "none", target, 0.0).result()  # the process is there
        for name in ATTACKS if only is None else (only,):
            attack = other.submit(play, name, target, seconds)
            probes = probed(probe_port, seconds)
            rows[name] = summary(probes, attack.result())
            typer.echo(f"{name}: {rows[name]}", err=True)
            time.sleep(_SETTLE_S)
    holds = all(row["holds"] for row in rows.values())
    figures = {"seconds": seconds, "cores": cores, "period_ms": 1000 * PERIOD_S}
    write_figures({**figures, "bar_ms": BAR_MS, "attacks": rows, "holds": holds}, out)
    if not holds:
        raise typer.Exit(1)


@contextmanager
def _served() -> Iterator[tuple[AttackedPort, int]]:
    """Run `dsp-gym shadow` on a simulated job until the block ends."""
    port, probe_port = free_ports(2)
    seen = snapshot_to_json(recorded([load_job(JOB)], 1)[-1].job(0))
    snapshot = {**seen, "job": ATTACKED.decode(), "t_s": int(T_S)}
    with tempfile.TemporaryDirectory() as folder:
        token, config = Path(folder) / "token", Path(folder) / "shadow.yaml"
        token.write_text(_TOKEN + "\n", "utf-8")
        token.chmod(0o600)
        config.write_text(yaml.safe_dump(_config(port, probe_port, token)), "utf-8")
        words = (
            "--serve",
            "--speed",
            60,
            "--duration",
            "7d",
            "--journal",
            Path(folder) / "journal",
            "--json",
        )
        command = dsp_gym("shadow", config, LOAD, *words)
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _await_start(process, probe_port, Path(folder) / "log")
            yield AttackedPort(_HOST, port, _TOKEN, json.dumps(snapshot).encode()), probe_port
        finally:
            process.terminate()
            process.wait(30)


def _config(port: int, probe_port: int, token: Path) -> dict[str, object]:
    serve = {"port": port, "probe_port": probe_port, "token_file": str(token)}
    return {
        "job": JOB,
        "policies": ["ds2", "justin-artifact", "incumbent"],
        "guardrails": "deployed",
        "interval_s": 60,
        "serve": serve,
    }


def _await_start(process: subprocess.Popen[bytes], probe_port: int, log: Path) -> None:
    end_s = time.monotonic() + _START_S
    while _status(probe_port) != 200:
        if process.poll() is not None or time.monotonic() > end_s:
            raise DspGymError(f"dsp-gym shadow did not start: {log.read_text('utf-8')[-2000:]}")
        time.sleep(0.2)


def _status(port: int) -> int:
    """Ask over a new connection; the status of the answer, 0 without one."""
    try:
        with socket.create_connection((_HOST, port), timeout=_LONGEST_S) as link:
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return int(link.recv(64).split(b" ", 2)[1])
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    run(main)
