"""The commit under evaluation: a test set belongs to one, so a changed tree has none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from dsp_gym.errors import ConfigError

_REMEDY = "Evaluate on the development set, or on seeds of your own: --key FILE."


class Commit(NamedTuple):
    """A commit with the folder of its files."""

    hash: str
    root: Path


def commit_under_evaluation(ledger: str, code: Path | None = None) -> Commit:
    """Return the commit that the running code is of.

    Args:
        ledger: Path of the ledger from the root: it changes with each evaluation, and no run
            depends on it.
        code: A file of the code; None: of this package.

    Returns:
        The commit.

    Raises:
        ConfigError: The code is in no repository, or the tree differs from its commit.
    """
    file = code or Path(__file__)
    try:
        root = Path(_git(file.parent, "rev-parse", "--show-toplevel").strip())
        _git(root, "ls-files", "--error-unmatch", str(file))
        found = _git(root, "rev-parse", "HEAD").strip()
        changed = _git(root, "status", "--porcelain=v1", "-z", "--untracked-files=normal")
    except (OSError, subprocess.CalledProcessError):
        raise ConfigError(
            "the running code is of no commit: a test set's seeds are a hash of one",
            key="--set",
            value="test",
            remedy=f"Run from a clone of the repository. {_REMEDY}",
        ) from None
    # A state of two letters, a blank and the path; a renamed file has a second path, without them.
    others = [one for one in changed.split("\0") if one and one[3:] != ledger]
    if others:
        raise ConfigError(
            f"the tree differs from its commit in {len(others)} "
            f"file{'s' if len(others) > 1 else ''}, such as {others[0][3:]}",
            key="--set",
            value="test",
            remedy=f"Commit the changes first: a test set belongs to a commit. {_REMEDY}",
        )
    return Commit(found, root)


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout
