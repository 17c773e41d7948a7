"""`make fuzz`: 100,000 cases of every reader, continued where it was stopped.

    python -m tests.fuzz [READER ...] [--cases N] [--from N] [--state FILE]

A case that fails is named with its number: `--from NUMBER --cases 1` makes it again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz import of_policies
from tests.fuzz.all_readers import READERS
from tests.fuzz.bounds import problems
from tests.fuzz.readers import Reader

EVERY = 500
"""Cases between two notes of how far it is."""


def main() -> int:
    """Fuzz the readers named, or all."""
    told = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    told.add_argument("readers", nargs="*", metavar="READER", help=", ".join(READERS))
    told.add_argument("--cases", type=int, default=100_000, help="cases of each reader")
    told.add_argument("--from", type=int, dest="first", default=None, help="number of the first")
    told.add_argument("--state", type=Path, default=Path("runs/fuzz.json"), help="how far it is")
    given = told.parse_args()
    unknown = [name for name in given.readers if name not in READERS]
    if unknown:
        told.error(f"there is no reader {unknown[0]!r}; there are: {', '.join(READERS)}")
    done: dict[str, int] = {}
    if given.first is None and given.state.is_file():
        done = json.loads(given.state.read_text(encoding="utf-8"))
    faults = 0
    try:
        for name in given.readers or READERS:
            first = done.get(name, 0) if given.first is None else given.first
            last = (first if given.first is not None else 0) + given.cases
            faults += _fuzzed(READERS[name], first, last, done, given)
            if given.first is None:
                too_much = problems(READERS[name])
                faults += len(too_much)
                for said in too_much:
                    _say(said)
    finally:
        of_policies.close()
    return 1 if faults else 0


def _fuzzed(
    reader: Reader, first: int, last: int, done: dict[str, int], given: argparse.Namespace
) -> int:
    began_s, faults, seen = time.process_time(), 0, set()
    for number in range(first, last):
        data = reader.case(number)
        try:
            reader.takes(data)
        except Exception as error:
            faults += 1
            kind = (type(error), traceback.extract_tb(error.__traceback__)[-1][:2])
            if kind not in seen:
                seen.add(kind)
                traceback.print_exc(limit=-3)
                _say(f"{reader}: case {number}: {data[:200]!r}")
        if given.first is None and (number + 1 == last or number % EVERY == 0):
            done[reader.name] = number + 1
            given.state.parent.mkdir(parents=True, exist_ok=True)
            given.state.write_text(json.dumps(done, indent=1), encoding="utf-8")
    took_s = time.process_time() - began_s
    _say(f"{reader}: cases {first} to {last - 1}: {faults} faults, {took_s:.0f} s of CPU")
    return faults


def _say(said: str) -> None:
    sys.stdout.write(f"{said}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
