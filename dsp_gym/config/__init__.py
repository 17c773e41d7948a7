"""Configuration: YAML files read into frozen models, with errors that name file, key and value."""

from __future__ import annotations

from dsp_gym.config.files import (
    configs_root,
    find,
    load,
    load_model,
    names,
    parse,
    read_yaml,
    write_atomic,
)
from dsp_gym.config.model import ConfigModel

__all__ = [
    "ConfigModel",
    "configs_root",
    "find",
    "load",
    "load_model",
    "names",
    "parse",
    "read_yaml",
    "write_atomic",
]
