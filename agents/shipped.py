"""The policies shipped with the package, by name: `shipped:planning`, for instance."""

from __future__ import annotations

from pathlib import Path

from dsp_gym.errors import PolicyError, did_you_mean
from dsp_gym.policies.config import SHIPPED

PRETRAINED = Path(__file__).resolve().parent / "pretrained"
"""One folder per policy, as `dsp-gym train` makes it; its `card.md` describes its training."""


def policy_folder(path: str) -> Path:
    """Find the folder of a trained policy.

    Args:
        path: Path of the folder, or `shipped:NAME` for one in the package.

    Returns:
        The folder, which need not exist unless it is shipped.

    Raises:
        PolicyError: No policy of that name is shipped.
    """
    if not path.startswith(SHIPPED):
        return Path(path)
    name = path.removeprefix(SHIPPED)
    known = sorted(folder.name for folder in PRETRAINED.iterdir() if folder.is_dir())
    if name not in known:
        raise PolicyError(
            f"no policy '{name}' is shipped", key="path", remedy=did_you_mean(name, known)
        )
    return PRETRAINED / name
