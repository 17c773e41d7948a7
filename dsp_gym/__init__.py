"""Train, compare and safely deploy autoscaling policies for Apache Flink jobs.

Importing this package registers its environments with Gymnasium: at once if Gymnasium has been
imported, otherwise when it is. The functions are imported when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsp_gym.envs.registration import register_with_gymnasium
from dsp_gym.version import __version__

if TYPE_CHECKING:
    from dsp_gym.envs.parallel import parallel_env
    from dsp_gym.evaluation.returns import PolicyReturns, evaluate_policy

__all__ = ["PolicyReturns", "__version__", "evaluate_policy", "parallel_env"]

_PLACES = {
    "PolicyReturns": "dsp_gym.evaluation.returns",
    "evaluate_policy": "dsp_gym.evaluation.returns",
    "parallel_env": "dsp_gym.envs.parallel",
}
"""Module of each public name that is imported late."""

register_with_gymnasium()


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'dsp_gym' has no attribute '{name}'")
    from importlib import import_module

    found: object = getattr(import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
