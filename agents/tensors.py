"""Weights from a file of safetensors, read within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import PolicyError

MOST_BYTES = 128 * 2**20
"""Bytes of a file of weights; the largest network that can be configured has about 40 MiB."""

MOST_TENSORS = 4096
OF_JOBS = "jobs/"
"""Begin of the names of arrays that say what was seen of a job; NaN there: it was never seen."""

_MOST_AXES = 8
_MOST_HEADER_BYTES = 2**20
_REMEDY = "Export or pull the policy again."


def load_tensors(packed: bytes, file: Path) -> dict[str, NDArray[Any]]:
    """Unpack arrays, and refuse those that no policy can compute with.

    Args:
        packed: content of the file.
        file: its path, for errors.

    Returns:
        Arrays by name.

    Raises:
        PolicyError: It is no such file, has too many arrays or axes, or an array has a value that
            is NaN or infinite.
    """
    try:
        _check_header(packed)
        arrays: dict[str, NDArray[Any]] = load(packed)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise PolicyError(
            f"is not a safetensors file: {error}", file=file, remedy=_REMEDY
        ) from error
    refuse_not_finite(arrays, file)
    return arrays


def refuse_not_finite(arrays: Mapping[str, NDArray[Any]], file: Path) -> None:
    """Refuse arrays with a value that is NaN or infinite.

    Raises:
        PolicyError: An array has one; the error names file and array.
    """
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.inexact):
            continue
        is_lost = np.isinf(array) if name.startswith(OF_JOBS) else ~np.isfinite(array)
        lost = int(np.count_nonzero(is_lost))
        if lost:
            raise PolicyError(
                f"{lost:,} of {array.size:,} values of the array '{name}' are NaN or infinite",
                file=file,
                key=name,
                remedy="Its training diverged, or the file is damaged: train it or pull it again.",
            )


def _check_header(packed: bytes) -> None:
    """Look at names and shapes before anything is made of them."""
    size = int.from_bytes(packed[:8], "little")
    if len(packed) < 8 or size > _MOST_HEADER_BYTES:
        raise ValueError(f"its header says {size:,} bytes")
    header = parse_json(packed[8 : 8 + size])
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    tensors = {name: one for name, one in header.items() if name != "__metadata__"}
    if len(tensors) > MOST_TENSORS:
        raise ValueError(f"it has {len(tensors):,} arrays, {MOST_TENSORS:,} are the most")
    for name, one in tensors.items():
        shape = one.get("shape") if isinstance(one, dict) else None
        if not isinstance(shape, list) or len(shape) > _MOST_AXES:
            raise ValueError(f"array '{name}' has no shape of at most {_MOST_AXES} axes")
