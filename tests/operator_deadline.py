"""The time that a cycle of the operator's autoscaler waits for an unresponsive dsp-gym.

    python -m tests.operator_deadline

Cycles against a frozen process, with the plugin's default time limit of 200 ms; ends with 1 where
one of them took more than 250 ms. To be run on a quiet machine.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path

from tests.operator_loop import TOKEN, autoscaler, compiled, cycle, options

CYCLES, WARM_UP, MOST_MS = 110, 10, 250.0


def main() -> int:
    """Measure, and say what was found."""
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as silent:
        folder = Path(name)
        (folder / "token").write_text(TOKEN)
        given = options(
            f"http://127.0.0.1:{silent.getsockname()[1]}",
            folder / "token",
            "policy",
            timeout="200 ms",
        )
        took = []
        with autoscaler(compiled(folder / "classes"), folder / "operator") as loop:
            for k in range(CYCLES):
                (done,) = loop.run(cycle(given, t_s=1_700_000_000.0 + 60 * k))
                took.append(sum(done["took_ms"]))
    took = sorted(took[WARM_UP:])
    sys.stdout.write(
        f"{len(took)} cycles: median {took[len(took) // 2]:.0f} ms, longest {took[-1]:.0f} ms, "
        f"at most {MOST_MS:.0f} ms allowed\n"
    )
    return int(took[-1] > MOST_MS)


if __name__ == "__main__":
    sys.exit(main())
