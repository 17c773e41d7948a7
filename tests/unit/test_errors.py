from __future__ import annotations

import pickle

import pytest

from dsp_gym.errors import ConfigError, DspGymError, GraphError, MissingExtraError, did_you_mean


def test_the_message_says_where_what_and_what_next() -> None:
    error = ConfigError(
        "expected a positive number",
        file="configs/jobs/a.yaml",
        key="source.rate_per_s",
        value=-3,
        remedy="Give records per second.",
    )
    assert str(error) == (
        "configs/jobs/a.yaml: key 'source.rate_per_s': value -3: expected a positive number. "
        "Give records per second."
    )


def test_a_remedy_follows_a_finished_sentence_without_a_second_full_stop() -> None:
    assert str(DspGymError("It is gone.", remedy="Make it.")) == "It is gone. Make it."


def test_a_long_value_is_cut_to_one_line() -> None:
    assert len(str(ConfigError("is long", value="x" * 10_000))) < 200


def test_the_innermost_file_wins() -> None:
    assert GraphError("cycle", file="inner.yaml").in_file("outer.yaml").file == "inner.yaml"
    assert GraphError("cycle").in_file("outer.yaml").file == "outer.yaml"


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("is wrong", file="a.yaml", key="b", value=1, remedy="Fix it."),
        MissingExtraError("train", "training an agent"),
    ],
)
def test_errors_cross_process_borders_whole(error: DspGymError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_without_a_near_choice_all_are_named() -> None:
    assert did_you_mean("zzz", ["hpa-cpu", "ds2"]) == "Choose from: ds2, hpa-cpu."
    assert did_you_mean("ds3", ["hpa-cpu", "ds2"]) == "Did you mean 'ds2'?"
