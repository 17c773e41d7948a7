"""Encoding of a dataset's transitions, and the experiments that may learn from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsp_gym.config.files import parse
from dsp_gym.datasets.encoding import Encoding, EncodingConfig
from dsp_gym.errors import ConfigError, DatasetError
from dsp_gym.job.catalog import load_job

SPEC = load_job("nexmark-q11")
FOLDER = Path("somewhere")


def encoding(**env) -> tuple[Encoding, EncodingConfig]:
    config = EncodingConfig.model_validate({"env": env})
    return Encoding.of(config, {SPEC.job: SPEC}), config


def test_datasets_from_before_there_were_capacity_actions_hold_moves_of_vertices():
    found, config = encoding()
    older = found.model_dump(mode="json", exclude={"action", "kappas", "sizing"})
    read = parse(Encoding, older, "manifest")
    assert read == found
    read.refuse_other(config.env, [SPEC], FOLDER)


def test_capacity_actions_have_no_room_for_vertices_and_name_their_multiples():
    found, config = encoding(action="capacity")
    assert (found.vertices, found.vertex_features, found.moves) == (0, (), ())
    assert len(found.kappas) == 10
    assert found.job_features[-1] == "late_price"
    found.refuse_other(config.env, [SPEC], FOLDER)
    with pytest.raises(ConfigError, match="leave vertices out"):
        parse(EncodingConfig, {"env": {"action": "capacity"}, "vertices": 3}, "config")


def test_other_multiples_are_another_release():
    found, config = encoding(action="capacity")
    other = found.model_copy(update={"kappas": (1.0, 2.0)})
    with pytest.raises(DatasetError, match=r"it lacks 1\.07"):
        other.refuse_other(config.env, [SPEC], FOLDER)
