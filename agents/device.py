"""The device that a network learns on: the CPU, or a GPU, which can be lost in the middle."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsp_gym.errors import DeviceError
from dsp_gym.simulation.cuda.card import find_card, is_simulated

SAID = 200
"""Most characters of a driver's message."""

TOO_LITTLE_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
"""The driver's name of the error, in the messages of numba-cuda and of its launches."""


def find_device() -> tuple[torch.device, str]:
    """Find the GPU that `agent.device: cuda` asks for, and free what an earlier training left.

    Returns:
        Torch's device and the card's name; the CPU's where numba's simulator stands for the card.

    Raises:
        DeviceError: There is no card, or torch cannot use it.
    """
    card = find_card()
    if is_simulated():
        return torch.device("cpu"), card.name
    if not torch.cuda.is_available():
        raise DeviceError(
            f"torch {torch.__version__} cannot use {card.name}",
            remedy="Install torch for the driver's CUDA, or set agent.device: cpu.",
        )
    gc.collect()  # networks and their optimisers refer to each other
    torch.cuda.empty_cache()
    return torch.device("cuda", torch.cuda.current_device()), card.name


def as_tensor(array: Any, device: torch.device) -> Tensor:
    """Read an array on the card in place.

    Args:
        array: An array with `__cuda_array_interface__`; of numba's simulator, one of the host.
        device: Its device.

    Returns:
        A tensor of the same memory; under the simulator a copy.
    """
    if is_simulated():
        return torch.from_numpy(array.to_host())
    return torch.as_tensor(array, device=device)


def is_of_card(error: BaseException) -> bool:
    """Return whether an error is the card's: the driver's, as torch or numba-cuda report it.

    Returns:
        True for a lost card, too little memory on it, or a kernel that failed.
    """
    kinds: list[type] = [torch.AcceleratorError, torch.OutOfMemoryError]
    if not is_simulated():
        from numba.cuda.cudadrv.driver import CudaAPIError

        kinds += [CudaAPIError, *_errors_of_launches()]
    # Torch's libraries of matrix products report the card's errors by this text alone.
    told = isinstance(error, RuntimeError) and "CUDA error" in str(error)
    return told or isinstance(error, tuple(kinds))


def _errors_of_launches() -> list[type]:
    """Return the error of NVIDIA's package through which numba-cuda launches kernels.

    The package keeps its error in a private module, which another version may lack.
    """
    try:
        from cuda.core._utils.cuda_utils import CUDAError
    except ImportError:
        return []
    return [CUDAError]


def lost(error: BaseException, card: str, steps: int, checkpoint: Path, kept: int) -> DeviceError:
    """Describe a training that the card has ended.

    Args:
        error: What torch or numba-cuda said.
        card: The card's name.
        steps: Decisions learned from.
        checkpoint: Folder of the last checkpoint.
        kept: Decisions that it has learned from; below zero where there is none.

    Returns:
        The error to raise.
    """
    said = " ".join(str(error).split())[:SAID]
    if isinstance(error, torch.OutOfMemoryError) or TOO_LITTLE_MEMORY in said:
        what = f"{card} has too little memory for this training"
        remedy = "Set agent.batch_size or agent.n_envs lower and train from the start."
    else:
        what = f"{card} was lost after {steps:,} decisions"
        remedy = "Train from the start, on this card or with agent.device: cpu."
        if kept >= 0:
            remedy = (
                f"The checkpoint at {kept:,} decisions is kept: continue with --resume, on this "
                "card or with agent.device: cpu."
            )
    return DeviceError(f"{what}: {said}", file=checkpoint, remedy=remedy)
