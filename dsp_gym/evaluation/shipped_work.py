"""Work that can be done on another machine: names are looked up, and files go with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, TypeVar

from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import folder_of
from dsp_gym.simulation.options import SimulationOptions

Work = TypeVar("Work")


@dataclass(frozen=True, slots=True)
class ShippedWork(Generic[Work]):
    """Work with its policy resolved, and the files of that policy where they are needed."""

    work: Work
    policy: PolicyConfig
    files: Mapping[str, bytes] | None  # by path below the policy's folder; None: it is there

    @contextmanager
    def unpacked(self) -> Iterator[PolicyConfig]:
        """Put the policy's folder on this machine for a block.

        Yields:
            The policy, which finds its folder.
        """
        if self.files is None:
            yield self.policy
            return
        with TemporaryDirectory(prefix="dsp-gym-policy-") as name:
            for path, content in self.files.items():
                file = Path(name) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            params = {**self.policy.params, "path": name}
            yield self.policy.model_copy(update={"params": params})


def ship(work: Work, policy: PolicyConfig, *, shares_disk: bool) -> ShippedWork[Work]:
    """Take along what the work of a policy needs.

    Args:
        work: The rest of it.
        policy: Resolved: no name is left to look up.
        shares_disk: Whether the files of this machine are seen where the work is done.

    Returns:
        The work with the folder of a trained policy, but for those that are shipped.
    """
    folder = folder_of(policy)
    if folder is None or shares_disk:
        return ShippedWork(work, policy, None)
    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    return ShippedWork(work, policy, files)


def one_thread(simulation: SimulationOptions) -> SimulationOptions:
    """Return the options for a place where every core has other work.

    Returns:
        A copy with one thread; results do not depend on it.
    """
    return simulation.model_copy(update={"threads": 1})
