"""`dsp-gym shadow` as a process that tests may stop: prints its address, ends with its stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.unit.control.serve.conftest import session_of


def main(folder: str, guardrails: str) -> None:
    """Serve a simulated job."""
    policies = [
        {"name": "planner", "policy": "planner"},
        {"name": "ds2", "policy": "ds2-local"},
        "incumbent",
    ]
    chain = None if guardrails == "none" else guardrails
    with session_of(Path(folder), policies=policies, guardrails=chain) as shown:
        sys.stdout.write(f"{shown.server.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
