"""The graphics card: which one there is, or what is missing for one to be used.

Nothing of CUDA is imported unless the extra `gpu` is installed, and then only when asked.
"""

from __future__ import annotations

import importlib.util
import os
from typing import NamedTuple

from dsp_gym.errors import DeviceError, MissingExtraError

DISTRIBUTION = "numba-cuda"
"""Distribution that compiles for the card, of the extra `gpu`."""

OLDEST = (7, 5)
"""Least compute capability: that of the oldest cards that CUDA 13 compiles for."""

SIMULATED = "NUMBA_ENABLE_CUDASIM"
"""Environment variable under which numba runs kernels as plain Python: a card for tests."""


class Card(NamedTuple):
    """A card that compiled code can run on."""

    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    free_bytes: int
    driver: str

    def __str__(self) -> str:
        major, minor = self.compute_capability
        free, whole = self.free_bytes / 2**30, self.memory_bytes / 2**30
        return (
            f"{self.name}, compute capability {major}.{minor}, {free:.1f} of {whole:.1f} GiB free, "
            f"CUDA {self.driver} driver"
        )


def is_simulated() -> bool:
    """Return whether kernels run on the CPU, as plain Python, one thread of the card at a time.

    Returns:
        True where the environment variable `SIMULATED` asked for it before numba was imported.
    """
    return os.environ.get(SIMULATED, "0") not in ("", "0")


def find_card() -> Card:
    """Find the card that kernels are run on.

    Returns:
        The current card; numba's simulator stands for one where the tests switched it on.

    Raises:
        MissingExtraError: The extra `gpu` is not installed.
        DeviceError: There is no card, or its driver does not fit.
    """
    if importlib.util.find_spec("numba_cuda") is None:
        raise MissingExtraError("gpu", "a simulation on a GPU")
    if is_simulated():
        return Card("numba's simulator, on the CPU", (9, 0), 2**30, 2**30, "no")
    from numba import cuda

    try:
        return _current(cuda)
    except Exception as error:  # numba-cuda and the driver's bindings raise errors of many kinds
        if isinstance(error, DeviceError):
            raise
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise DeviceError(
            f"no NVIDIA GPU can be used: {said}",
            remedy="Look whether `nvidia-smi` lists a card and a driver for CUDA 13 (580 or "
            "newer), or leave out device='cuda'.",
        ) from error


def _current(cuda: object) -> Card:
    from numba.cuda.cudadrv import driver

    device = cuda.get_current_device()  # type: ignore[attr-defined]  # numba-cuda has no types
    free, whole = cuda.current_context().get_memory_info()  # type: ignore[attr-defined]
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    capability = tuple(device.compute_capability)
    if capability < OLDEST:
        raise DeviceError(
            f"{name} has compute capability {capability[0]}.{capability[1]}",
            remedy=f"Take a card with {OLDEST[0]}.{OLDEST[1]} or more, or leave out device='cuda'.",
        )
    version = ".".join(map(str, driver.driver.get_version()))
    return Card(name, capability, int(whole), int(free), version)
