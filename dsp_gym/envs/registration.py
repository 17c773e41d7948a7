"""Environment ids. Their version rises whenever the same seed would give another trajectory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from dsp_gym.errors import ConfigError

NAMESPACE = "dsp_gym"
IDS = {
    f"{NAMESPACE}/Nexmark-{query.upper()}-v1": f"nexmark-{query}"
    for query in ("q1", "q2", "q3", "q5", "q8", "q11")
}
"""Id of each scenario that is one shipped job."""

FROM_CONFIG = f"{NAMESPACE}/Autoscale-v1"
"""Id of the environment built from a config."""

CAPACITY_IDS: dict[str, str | None] = {
    name.replace("-v1", "-Capacity-v2"): job for name, job in [*IDS.items(), (FROM_CONFIG, None)]
}
"""The same scenarios with capacity actions; `CAPACITY_CHANGES` raises their version as well."""

OLDEST_GYMNASIUM = (0, 29)
"""The oldest Gymnasium that single environments are tried with; pip asks for a newer one.

CleanRL's scripts are written for it.
"""

OLDEST_FOR_BATCHES = (1, 1)
"""The oldest Gymnasium whose vector environments have autoreset modes."""

UPGRADE = "pip install 'gymnasium>=1.4,<2'"
"""The command that installs what pip asks for."""

CHANGES: tuple[tuple[str, str, frozenset[str] | None], ...] = (
    (
        "v1",
        "A window is blocked for just as long as its results find no room downstream, not for "
        "whole seconds; a period fires when its records have come in.",
        frozenset({"nexmark-q5", "nexmark-q8"}),
    ),
    (
        "v1",
        "Jobs whose keys follow Zipf's law hit the block cache less: a block of 4 KiB mixes hot "
        "and cold keys.",
        frozenset(),
    ),
    (
        "v1",
        "Jobs that state `level0_files` pay for lookups in level 0, for compactions, and for the "
        "cold blocks these leave.",
        frozenset(),
    ),
    ("v0", "First version.", None),
)
"""Changes of trajectories, newest first: version, change, and the shipped scenarios it reaches.

None stands for all; an environment built from a config may hold any job and has every change.
"""

CAPACITY_CHANGES: dict[str, str] = {
    "v2": "Times per record measured on a cache that fills count only where they are shorter than "
    "those believed. What a job reads while it stays behind is its limit, where no gauge shows it.",
}
"""Changes of capacity actions and their observations by version, newest first."""


def changes(job: str | None, *, capacity: bool = False) -> dict[str, str]:
    """List the changes of one environment by version.

    Args:
        job: Job of the scenario; None: the environment built from a config.
        capacity: Of the form with capacity actions.

    Returns:
        Sentences by version, newest first.
    """
    found: dict[str, list[str]] = {}
    for version, what, jobs in CHANGES:
        told = found.setdefault(version, [])
        if job is None or jobs is None or job in jobs:
            told.append(what)
    same = "Same trajectories as before; raised with the other environments."
    own = CAPACITY_CHANGES if capacity else {}
    return own | {version: " ".join(told) or same for version, told in found.items()}


def register_with_gymnasium() -> None:
    """Make the ids known to Gymnasium, now or as soon as it is imported.

    Gymnasium brings NumPy and takes a fifth of a second to import, and it has no hook for plugins
    (it dropped the entry points `gymnasium.envs`). So a finder waits for its import.
    """
    # A second call must not install a second finder.
    if not any(isinstance(finder, _GymnasiumFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GymnasiumFinder())
    if "gymnasium" in sys.modules:
        register_all()


def register_all() -> None:
    """Make the ids known to Gymnasium, without importing any of the environments.

    An old Gymnasium gets ids that `make` refuses with the remedy: it may be there for a program
    that asks for none of them.
    """
    import gymnasium

    if too_old(gymnasium.__version__):
        from gymnasium.envs.registration import registry

        for name in {*IDS, FROM_CONFIG, *CAPACITY_IDS}.difference(registry):
            gymnasium.register(id=name, entry_point=refuse_old)
        return
    of_vertices: list[tuple[str, str | None]] = [*IDS.items(), (FROM_CONFIG, None)]
    for name, job in [*of_vertices, *CAPACITY_IDS.items()]:
        if name not in gymnasium.registry:
            arguments = {} if job is None else {"job": job}
            if name in CAPACITY_IDS:
                arguments["action"] = "capacity"
            gymnasium.register(
                id=name,
                entry_point="dsp_gym.envs.single:AutoscaleEnv",
                vector_entry_point="dsp_gym.envs.vector:vector_env",
                kwargs=arguments,
            )


def too_old(version: str, oldest: tuple[int, int] = OLDEST_GYMNASIUM) -> bool:
    """Say whether a Gymnasium is older than the environments work with.

    Returns:
        True where it is.

    >>> too_old("0.28.1"), too_old("0.29.1"), too_old("1.0.0", OLDEST_FOR_BATCHES)
    (True, False, True)
    """
    numbers = version.split(".")[:2]
    return all(map(str.isdigit, numbers)) and tuple(map(int, numbers)) < oldest


def refuse_old(**keywords: object) -> NoReturn:
    """Refuse to make an environment in a Gymnasium that is too old.

    Args:
        **keywords: Those of the environment.

    Raises:
        ConfigError: Always; it says which one is needed.
    """
    import gymnasium

    raise old_gymnasium(gymnasium.__version__)


def old_gymnasium(
    version: str, what: str = "environments", oldest: tuple[int, int] = OLDEST_GYMNASIUM
) -> ConfigError:
    """Make the error that names an old Gymnasium, and the command that replaces it.

    Args:
        version: Of the Gymnasium that is installed.
        what: What needs a newer one.
        oldest: The oldest that will do.

    Returns:
        The error, to be raised.
    """
    from dsp_gym.errors import ConfigError

    needed = ".".join(map(str, oldest))
    return ConfigError(
        f"Gymnasium {version} is installed, and {what} need {needed} or newer",
        remedy=f"Another package may have pinned it: {UPGRADE}, or give that package its own "
        "virtual environment.",
    )


def no_batches(version: str) -> ConfigError:
    """Make the error of a Gymnasium that has single environments of ours and no batches.

    Returns:
        The error, to be raised.
    """
    return old_gymnasium(version, "batches of environments", OLDEST_FOR_BATCHES)


class _GymnasiumFinder:
    """A finder that loads Gymnasium by the finders after it, then registers the ids."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        # The other finders are asked in their order, as the import system would.
        others = (finder for finder in sys.meta_path if not isinstance(finder, _GymnasiumFinder))
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader)  # type: ignore[assignment]  # the class `Loader` is costly to import, and its two methods are all that is asked for
        return spec


class _RegisteringLoader:
    """A loader that delegates to another one, steps out of its way, and registers the ids."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        register_all()
