"""Which policy it is that decides: a version and a hash that two equal ones share."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.protocols import Policy
from dsp_gym.version import __version__


class Version(NamedTuple):
    """Of a policy."""

    version: str
    sha256: str


def version_of(policy: Policy) -> Version:
    """Name the weights of a trained policy and their release, or the rules of another.

    Returns:
        Release and SHA-256 of the weights; for a rule, of its class and configuration.
    """
    document: Any = getattr(policy, "document", None)
    weights = getattr(document, "weights_sha256", None)
    if isinstance(weights, str):
        return Version(str(document.versions.get("dsp-gym", "unknown")), weights)
    config: Any = getattr(policy, "config", None)
    text = config.model_dump_json() if hasattr(config, "model_dump_json") else ""
    kind = f"{type(policy).__module__}:{type(policy).__qualname__}"
    return Version(__version__, _sha256(f"{kind}\n{text}"))


def model_sha256(spec: JobSpec) -> str:
    """Hash a job file's content, the evidence of its fit left out.

    Returns:
        64 hexadecimal digits.
    """
    return _sha256(spec.model_dump_json(exclude={"fitted"}))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
