"""How a job of each kind that people run was scaled up and back, with its records counted.

`pytest -m acting --record-releases` writes `acting.json` among the figures of the validation, from
`tests/integration/test_zoo_acting.py`; the page on releases of Flink shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from dsp_gym.backends.flink.versions import Way
from dsp_gym.config.strict_json import plain
from dsp_gym.studies.runner import keep_figures
from dsp_gym.studies.validation import releases


@dataclass(frozen=True, slots=True)
class Acted:
    """One job that was to be changed in one way: it was scaled up and back, or refused."""

    kind: str
    way: Way
    refused: str | None = None
    """What was said before it was touched; None: it was changed."""
    up_s: float | None = None
    """Seconds from the last task's end, or the new graph, until all tasks of the larger one run."""
    back_s: float | None = None
    """The same, back to the tasks that it had."""
    records: int | None = None
    """Records that its sinks had written in the end: none was lost, and none was there twice."""


@dataclass(frozen=True, slots=True)
class ActedOn:
    """The rows of one release of Flink."""

    on: str  # date of the last of them
    machine: str
    rows: Sequence[Acted]


_ACTED = TypeAdapter(dict[str, ActedOn])


def figures_file() -> Path:
    """Find the figures in a checkout.

    Returns:
        `docs/figures/validation/acting.json`.
    """
    return releases.figures_file().with_name("acting.json")


def read(file: Path) -> dict[str, ActedOn]:
    """Read how jobs were changed.

    Returns:
        By version of Flink; nothing where there is no file.
    """
    return _ACTED.validate_json(file.read_bytes()) if file.exists() else {}


def record(version: str, row: Acted, file: Path) -> None:
    """Keep how a job was changed, in place of what was known of it.

    Args:
        version: of Flink.
        row: what came of it.
        file: the figures.
    """
    found = read(file)
    before = found[version].rows if version in found else ()
    rows = [one for one in before if (one.kind, one.way) != (row.kind, row.way)]
    rows = sorted([*rows, row], key=lambda one: (one.kind, one.way))
    made = ActedOn(releases.today(), releases.machine(), rows)
    keep_figures(plain({**found, version: made}), file)


def by_kind(rows: Sequence[Acted]) -> Mapping[str, Mapping[Way, Acted]]:
    """Arrange the rows for a table.

    Returns:
        What came of each way, by kind.
    """
    kinds = dict.fromkeys(one.kind for one in rows)
    return {kind: {one.way: one for one in rows if one.kind == kind} for kind in kinds}
