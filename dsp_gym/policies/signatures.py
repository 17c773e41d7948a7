"""Signatures of trained policies: ed25519 over the digest of the folder, in `policy.sig` in it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.config.files import write_atomic
from dsp_gym.errors import MissingExtraError, PolicyError
from dsp_gym.policies.pins import SIGNATURE, digest_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

__all__ = ["refuse_unsigned", "sign"]

_CONTEXT = "dsp-gym policy 1\n"
"""Before the digest, so that a signature of anything else is none of a policy."""


def sign(folder: Path, private_key: Path) -> Path:
    """Sign a policy's folder.

    Args:
        folder: of a trained policy.
        private_key: PEM file of an ed25519 key without a password.

    Returns:
        The file of the signature, in the folder; its digest does not cover it.

    Raises:
        PolicyError: The file holds no such key.
        MissingExtraError: The package `cryptography` is not installed.
    """
    signature = _private(private_key).sign(_signed(folder))
    return write_atomic(folder / SIGNATURE, base64.b64encode(signature).decode() + "\n")


def refuse_unsigned(folder: Path, public_key: Path) -> None:
    """Refuse a folder without the signature of a key's owner.

    Args:
        folder: of a trained policy.
        public_key: PEM file of an ed25519 key.

    Raises:
        PolicyError: There is no signature, it is another's, or the folder changed since.
        MissingExtraError: The package `cryptography` is not installed.
    """
    key = _public(public_key)
    from cryptography.exceptions import InvalidSignature

    file = folder / SIGNATURE
    try:
        signature = base64.b64decode(file.read_text(encoding="utf-8"), validate=False)
        key.verify(signature, _signed(folder))
    except FileNotFoundError:
        raise PolicyError(
            "the policy is not signed",
            file=folder,
            remedy="Its owner signs it: dsp-gym policy sign FOLDER --key FILE.",
        ) from None
    except (InvalidSignature, OSError, ValueError):  # base64 and UTF-8 raise kinds of the last
        raise PolicyError(
            f"the signature is not one of {public_key} over the files that are there",
            file=file,
            remedy="Find out who changed the policy or signed it.",
        ) from None


def _signed(folder: Path) -> bytes:
    return f"{_CONTEXT}{digest_of(folder)}".encode()


def _private(file: Path) -> Ed25519PrivateKey:
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key("private", file, "openssl genpkey -algorithm ed25519 -out FILE")
    return key


def _public(file: Path) -> Ed25519PublicKey:
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(file.read_bytes())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key("public", file, "openssl pkey -in PRIVATE -pubout -out FILE")
    return key


def _no_key(kind: str, file: Path, made: str) -> PolicyError:
    return PolicyError(
        f"holds no {kind} ed25519 key as PEM without a password",
        file=file,
        remedy=f"Make one: {made}",
    )


def _require() -> None:
    try:
        import cryptography  # noqa: F401  # imported for its absence
    except ModuleNotFoundError as error:
        raise MissingExtraError("registry", "a signature of a policy") from error
