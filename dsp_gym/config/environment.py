"""Variables of the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Set variables for what is started in the block; what comes after it has those before it.

    Args:
        values: by the names of the variables.

    Yields:
        Nothing.
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def with_data_folder(path: str) -> str:
    """Fill in the folder of measured data.

    Args:
        path: of a configuration.

    Returns:
        The path, with the folder in place of `${DSP_GYM_DATA}`.
    """
    return path.replace("${DSP_GYM_DATA}", os.environ.get("DSP_GYM_DATA", "../shared/data"))
