"""Pins: a trained policy named with the digest of its folder, `runs/q11/latest/policy@sha256:...`.

A digest covers every file of the folder by name and content, so that write access to the folder, or
to an alias of the registry, is not enough to change the deciding policy.
"""

from __future__ import annotations

import re
from pathlib import Path

from dsp_gym.errors import PolicyError
from dsp_gym.policies.folder_files import read_regular
from dsp_gym.records.hashes import bytes_sha256, document_sha256

_MOST_BYTES = 256 * 2**20
_MARK = "@sha256:"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(folder: Path) -> str:
    """Compute the digest of a policy's folder; hidden files do not count.

    Returns:
        `sha256:` and 64 hexadecimal digits.

    Raises:
        OSError: A file cannot be read.
        PolicyError: A file is linked from elsewhere, or is too large.
    """
    files = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    hashes = {
        name: bytes_sha256(read_regular(path, _MOST_BYTES, folder))
        for name, path in files.items()
        if not any(part.startswith(".") for part in Path(name).parts)
    }
    return f"sha256:{document_sha256(hashes)}"


def split_pin(named: str) -> tuple[str, str | None]:
    """Split the name of a policy into name and digest.

    Returns:
        The name without a pin, and the digest; None without a pin.

    Raises:
        PolicyError: The text after the name is no digest.

    >>> split_pin("ds2")
    ('ds2', None)
    """
    name, mark, digits = named.partition(_MARK)
    if not mark:
        return named, None
    if not _DIGEST.fullmatch(f"sha256:{digits}"):
        raise PolicyError(
            "its digest is not one",
            value=named,
            remedy="Write sha256: and 64 hexadecimal digits, as dsp-gym policy show prints them.",
        )
    return name, f"sha256:{digits}"


def refuse_other_digest(folder: Path, digest: str, named: str) -> None:
    """Refuse a folder that differs from the pinned one.

    Raises:
        PolicyError: Its content differs, or the folder is not there.
    """
    if not folder.is_dir():
        raise PolicyError(
            "only the folder of a trained policy has a digest",
            value=named,
            remedy="Name the folder before @sha256:, or leave the digest out.",
        )
    found = digest_of(folder)
    if found != digest:
        raise PolicyError(
            f"the policy differs from the pinned one: its digest is {found}",
            file=folder,
            value=named,
            remedy="Find out who changed it. To accept it, pin this digest.",
        )
