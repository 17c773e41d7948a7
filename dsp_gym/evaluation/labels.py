"""The label of a policy in results, by its name, its file or the folder of its training."""

from __future__ import annotations

import re
from pathlib import Path

from dsp_gym.policies.pins import split_pin

LATEST = "latest"
"""Name of the link, beside the folders of trainings, to the newest of them."""

BEGUN = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-\d+)?")
"""Name of a training's folder: when it began, UTC; a number where two began in one second."""

POLICY = "policy"
"""Name of the policy's folder in that of its training."""


def label_of(policy: str | Path) -> str:
    """Return the label of a policy: its name, or that of its file or of the training it is from.

    >>> label_of("ds2"), label_of("policies/ds2-justin.yaml"), label_of("policies/mine")
    ('ds2', 'ds2-justin', 'mine')
    >>> label_of("runs/q11/latest/policy"), label_of("runs/q11/policy")
    ('q11', 'q11')
    >>> label_of("runs/q11/2026-11-22T10-00-00/policy")
    'q11-2026-11-22T10-00-00'
    """
    folder = Path(split_pin(str(policy))[0])
    if folder.suffix in {".yaml", ".yml"}:
        return folder.stem
    if folder.name == POLICY and folder.parent.name:
        folder = folder.parent
    parent = folder.parent.name
    if folder.name == LATEST and parent:
        return parent
    return f"{parent}-{folder.name}" if parent and BEGUN.fullmatch(folder.name) else folder.name
