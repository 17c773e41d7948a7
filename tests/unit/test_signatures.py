"""Where a signature is required, an unsigned or changed policy decides nothing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import agents
from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import seat_names, started
from dsp_gym.errors import MissingExtraError, PolicyError
from dsp_gym.policies.pins import SIGNATURE, digest_of
from dsp_gym.policies.signatures import refuse_unsigned, sign

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def keys(folder: Path, name: str, key=None) -> tuple[Path, Path]:
    """Files of a private and a public key."""
    key = key or Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture
def folder(tmp_path) -> Path:
    return shutil.copytree(Path(agents.__file__).parent / "pretrained/planning", tmp_path / "mine")


def test_a_signature_holds_until_a_file_changes(folder, tmp_path):
    private, public = keys(tmp_path, "owner")
    before = digest_of(folder)
    signed = CliRunner().invoke(app, ["policy", "sign", str(folder), "--key", str(private)])
    assert signed.exit_code == 0, signed.output
    assert digest_of(folder) == before  # a pin stays valid
    refuse_unsigned(folder, public)
    (folder / "card.md").write_text("changed")
    with pytest.raises(PolicyError, match="the signature is not one of"):
        refuse_unsigned(folder, public)


def test_the_signature_of_another_or_half_of_one_is_none(folder, tmp_path):
    private, public = keys(tmp_path, "owner")
    _, other = keys(tmp_path, "other")
    sign(folder, private)
    with pytest.raises(PolicyError, match="the signature is not one of"):
        refuse_unsigned(folder, other)
    for damaged in (b"", b"abc", b"\xff\xfe", (folder / SIGNATURE).read_bytes()[:40]):
        (folder / SIGNATURE).write_bytes(damaged)
        with pytest.raises(PolicyError, match="the signature is not one of"):
            refuse_unsigned(folder, public)


def test_a_run_that_demands_a_signature_refuses_a_policy_without_one(folder, tmp_path):
    private, public = keys(tmp_path, "owner")
    document = {"job": "nexmark-q11", "policy": str(folder), "signed_by": str(public)}
    config = parse(RunConfig, document, "test")
    with pytest.raises(PolicyError, match="is not signed"), started(config, mode="shadow"):
        pytest.fail("it was asked")
    sign(folder, private)
    assert seat_names(config) == ["mine"]
    assert seat_names(parse(RunConfig, document | {"policy": "ds2"}, "test")) == ["ds2"]


def test_a_fallback_of_the_guardrails_must_be_signed_too(folder, tmp_path):
    private, public = keys(tmp_path, "owner")
    guardrails = {"guardrails": [{"kind": "excess_budget", "policy": str(folder)}]}
    document = {"job": "nexmark-q11", "policy": "ds2", "guardrails": guardrails}
    config = parse(RunConfig, {**document, "signed_by": str(public)}, "test")
    with pytest.raises(PolicyError, match="is not signed"), started(config, mode="shadow"):
        pytest.fail("it was asked")
    sign(folder, private)
    assert seat_names(config) == ["ds2"]


def test_what_is_no_key_is_named(folder, tmp_path):
    for private, public in (
        keys(tmp_path, "curve", generate_private_key(SECP256R1())),
        (folder / "card.md", folder / "card.md"),
    ):
        with pytest.raises(PolicyError, match="no private ed25519 key"):
            sign(folder, private)
        with pytest.raises(PolicyError, match="no public ed25519 key"):
            refuse_unsigned(folder, public)
    assert not (folder / SIGNATURE).exists()


def test_without_the_library_a_demand_is_not_waived(folder, tmp_path, monkeypatch):
    _, public = keys(tmp_path, "owner")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtraError, match="registry"):
        refuse_unsigned(folder, public)
