"""Names from a cluster as files, job files and sentences take them.

Users of a cluster choose the names of its jobs: a name is never a path, markup, or a line of a
terminal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from dsp_gym.metrics.flink import names_in, vertex_of

_MOST, _MOST_OF_TAIL = 60, 40
_RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"com{i}" for i in range(1, 10))})


def safe_stem(name: str) -> str:
    """A file name without its ending, for a job of any name.

    Returns:
        Letters, digits, dots, dashes and underscores; it begins with a letter or a digit.

    >>> safe_stem("../../evil"), safe_stem("Orders per minute (EU)"), safe_stem("\u202e")
    ('evil', 'Orders-per-minute-EU', 'job')
    """
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    kept = re.sub(r"-?\.{2,}-?", "-", kept).strip("-._")[:_MOST].rstrip("-._")
    if not kept:
        return "job"
    return f"job-{kept}" if kept.lower().partition(".")[0] in _RESERVED else kept


def file_stems(jobs: Sequence[tuple[str, str]]) -> list[str]:
    """A file name for each of several jobs, no two alike in any case of letters.

    Args:
        jobs: name of each, and its resource on Kubernetes or else its id.

    Returns:
        Names without their ending; where two would be alike, each bears its resource or id.
    """
    stems = [safe_stem(name) for name, _ in jobs]
    often = Counter(stem.lower() for stem in stems)
    taken = {stem for stem, count in often.items() if count == 1}
    found = []
    for stem, (_, whose) in zip(stems, jobs, strict=True):
        if often[stem.lower()] > 1:
            longer = stem = f"{stem}-{safe_stem(whose)[:_MOST_OF_TAIL].rstrip('-._')}"
            number = 2
            while stem.lower() in taken:
                stem, number = f"{longer}-{number}", number + 1
            taken.add(stem.lower())
        found.append(stem)
    return found


def vertex_names(tasks: Sequence[str]) -> tuple[list[str], list[str]]:
    """Short names for the vertices of a job, by which its tasks are found again.

    A task is named after its chain; a vertex takes the name of the first operator in it that no
    other task has.

    Args:
        tasks: Flink's names of the tasks, as REST or Prometheus has them.

    Returns:
        One name for each, all distinct; and the tasks whose name is another's too.
    """
    choices = [names_in(task) for task in tasks]
    often = Counter(name.lower() for names in choices for name in dict.fromkeys(names))
    found: list[str] = []
    for task, names in zip(tasks, choices, strict=True):
        own = [name for name in names if often[name.lower()] == 1] or [*names, "vertex"]
        stem, number = own[0], 2
        if stem in found and task.endswith("Committer"):
            stem = f"{stem} committer"
        name = stem
        while name in found:
            name, number = f"{stem} {number}", number + 1
        found.append(name)
    lost = [t for t, name in zip(tasks, found, strict=True) if vertex_of(t, found) != name]
    return found, lost
