"""Find, read and write configuration files, and read files with credentials.

A file is named by its path, or by its name inside the `configs/` that travels with the package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dsp_gym.config.explain import explain
from dsp_gym.config.kinds import KINDS, model_of
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_yaml import parse_yaml
from dsp_gym.config.temporary import replacing
from dsp_gym.config.text import decoded, described
from dsp_gym.errors import ConfigError, DspGymError, did_you_mean

Model = TypeVar("Model", bound=BaseModel)


def configs_root() -> Path:
    """The folder of shipped configurations: inside an installed wheel, or beside the package.

    Returns:
        An existing folder with one folder per kind.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_configs", package.parent / "configs"):
        if root.is_dir():
            return root
    raise ConfigError(
        "the configurations shipped with dsp-gym are missing",
        file=package / "_configs",
        remedy="Install the package again: pip install --force-reinstall dsp-gym",
    )


def names(kind: str) -> list[str]:
    """The names of the shipped configurations of one kind.

    Returns:
        File names without `.yaml`, sorted.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind '{kind}'", remedy=did_you_mean(kind, KINDS))
    return sorted(path.stem for path in (configs_root() / kind).glob("*.yaml"))


def find(kind: str, name: str | Path) -> Path:
    """The file meant by a path, or by the name of a shipped configuration.

    Shipped ones in a folder below their kind's are named with it: `tuned/core-v1/ds2-tuned`.

    Returns:
        Path of an existing file.
    """
    path = Path(name)
    try:
        if path.is_file():
            return path
    except OSError as error:  # such as a name that is too long for one
        said = f"cannot be looked for: {error.strerror}"
        raise ConfigError(said, file=f"{str(name)[:80]}...") from None
    nested = len(path.parts) > 1 and not path.suffix and not path.is_absolute()
    if nested and ".." not in path.parts and not path.is_dir():
        shipped = (configs_root() / kind / path).with_suffix(".yaml")
        if shipped.is_file():
            return shipped
    is_path = bool(path.suffix) or len(path.parts) != 1 or path.is_dir()
    known = names(kind)
    if not is_path and str(name) in known:
        return configs_root() / kind / f"{name}.yaml"
    if not is_path:
        message = f"there is no shipped configuration '{name}' of kind '{kind}'"
        raise ConfigError(message, remedy=did_you_mean(str(name), known))
    if path.is_dir():
        raise ConfigError("is a folder, expected a YAML file", file=path)
    remedy = (
        f"Did you mean the shipped '{path.stem}'?"
        if path.stem in known
        else did_you_mean(path.stem, known)
    )
    raise ConfigError("there is no such file", file=path, remedy=remedy)


def read_yaml(path: str | Path) -> object:
    """The content of a YAML file; duplicate keys and broken syntax are refused with their line.

    Returns:
        Dictionaries, lists, texts, numbers, truth values and None; None for an empty file.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error
    return parse_yaml(decoded(data, path), file=str(path))


def parse(model: type[Model], data: object, file: str | Path) -> Model:
    """Build a model from data read from a file, naming file, key and value when it is wrong.

    Returns:
        The checked model.
    """
    if not isinstance(data, dict):
        said = "is empty" if data is None else f"holds {described(data)}"
        raise ConfigError(f"{said}, expected a mapping of keys", file=file)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise explain(error, model, data, str(file)) from None
    except DspGymError as error:
        raise error.in_file(file) from None


def load_model(model: type[Model], kind: str, name: str | Path) -> Model:
    """Read the configuration of one kind, given by name or path, into a model.

    Returns:
        The checked model.
    """
    path = find(kind, name)
    return parse(model, read_yaml(path), path)


def load(kind: str, name: str | Path) -> ConfigModel:
    """Read the configuration of one kind, given by name or path, into the model of that kind.

    Returns:
        The checked model, of the class that `model_of` gives.
    """
    return load_model(model_of(kind), kind, name)


def write_atomic(path: str | Path, content: str | bytes, *, private: bool = False) -> Path:
    """Write a file whole or not at all, creating its folder.

    The content goes to a temporary file beside the target, is synced, then takes its place, and the
    folder is synced. What a killed process left beside it is removed.

    Args:
        path: the file.
        content: bytes, or text to be encoded as UTF-8.
        private: only its owner may read it.

    Returns:
        Path of the file that was written.
    """
    target = Path(path)
    with replacing(target, private=private) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)
    return target


_OTHERS_READ = 0o004


def private_text(file: Path, key: str) -> str:
    """What a file with credentials holds.

    Args:
        file: only its owner, and a group, may read it.
        key: of the configuration that names it.

    Returns:
        Its text, ASCII, without white space around it.

    Raises:
        ConfigError: The file cannot be read, or every user of this machine can read it.
    """
    try:
        text = file.read_text(encoding="ascii")
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {error}",
            file=file,
            key=key,
            remedy="Write the credentials into that file, in ASCII.",
        ) from None
    if sys.platform != "win32" and mode & _OTHERS_READ:
        raise ConfigError(
            f"every user of this machine can read it: its mode is {mode & 0o777:03o}",
            file=file,
            key=key,
            remedy=f"chmod 600 {file}; for a volume of a Secret: defaultMode: 0440",
        )
    return text.strip()
