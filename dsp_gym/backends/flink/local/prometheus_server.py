"""The Prometheus of a local cluster: its configuration, its command line, and whether it is up."""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence
from pathlib import Path

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy set for the web knows nothing of this machine."""


def prometheus_config(scrape_interval_s: float, targets: Sequence[str]) -> str:
    """The text of `prometheus.yml`: one job that scrapes the given `host:port`.

    Returns:
        YAML, ending with a newline; the interval in milliseconds.

    >>> print(prometheus_config(5, ["127.0.0.1:9249"]), end="")
    global:
      scrape_interval: 5000ms
      scrape_timeout: 4000ms
    scrape_configs:
      - job_name: flink
        static_configs:
          - targets: ["127.0.0.1:9249"]
    """
    interval_ms = round(scrape_interval_s * 1000)
    listed = ", ".join(f'"{target}"' for target in targets)
    return (
        "global:\n"
        f"  scrape_interval: {interval_ms}ms\n"
        f"  scrape_timeout: {interval_ms * 4 // 5}ms\n"
        "scrape_configs:\n"
        "  - job_name: flink\n"
        "    static_configs:\n"
        f"      - targets: [{listed}]\n"
    )


def prometheus_command(
    program: Path, *, config: Path, storage: Path, port: int, retention_days: int
) -> list[str]:
    """The command line, on loopback only.

    Returns:
        Program and arguments, ready to be started.
    """
    return [
        str(program),
        f"--config.file={config}",
        f"--storage.tsdb.path={storage}",
        f"--storage.tsdb.retention.time={retention_days}d",
        f"--web.listen-address=127.0.0.1:{port}",
    ]


def is_ready(url: str) -> bool:
    """Whether a Prometheus answers queries there.

    Returns:
        True after Prometheus's own answer on `/-/ready` within 2 s; False for another server.
    """
    try:
        with _DIRECT.open(f"{url}/-/ready", timeout=2.0) as answer:
            return bool(answer.status == 200 and b"Prometheus" in answer.read())
    except OSError:
        return False
