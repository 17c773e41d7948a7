"""A policy folder of an LSTM network with random weights, whose decisions depend on memory."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from agents.folder import PolicyDocument, read_folder, write_folder
from agents.network import NetworkShape, parameters
from agents.shipped import policy_folder
from dsp_gym.envs.observation import FJ, FV

VERTICES = 12

_KEPT = tempfile.TemporaryDirectory(prefix="recurrent-")


@cache
def recurrent_folder() -> Path:
    """The folder, made once, for jobs of at most `VERTICES` vertices."""
    document = read_folder(policy_folder("shipped:q11"))[0]
    assert isinstance(document, PolicyDocument)
    shape = NetworkShape(
        encoder="mlp",
        hidden=(8,),
        whole=True,
        lstm=6,
        vertices=VERTICES,
        vertex_features=FV,
        job_features=FJ,
    )
    rng = np.random.default_rng(4)
    weights = {
        name: rng.normal(0.0, 0.7, size).astype(np.float32)
        for name, size in parameters(shape).items()
    }
    action = document.action.model_copy(update={"masked": False})
    document = document.model_copy(update={"network": shape, "action": action})
    return write_folder(Path(_KEPT.name) / "policy", document, weights, "", "")
