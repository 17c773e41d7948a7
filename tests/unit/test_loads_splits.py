from __future__ import annotations

import math
from collections import Counter

import pytest
from pydantic import ValidationError

from dsp_gym import config
from dsp_gym.errors import ConfigError, LoadError
from dsp_gym.loads import LoadConfig, LoadSampler, LoadSet
from dsp_gym.loads.spec import is_seeded

DIURNAL = {"form": "diurnal", "period_s": 7200}


def seeds(begin: int, end: int) -> dict:
    return {"from": begin, "to": end}


def split(*loads, begin: int = 0, end: int = 10) -> dict:
    return {"loads": list(loads), "seeds": seeds(begin, end)}


def trace(path: str, from_s: float = 0, to_s: float | None = None, **keys) -> dict:
    return {"load": {"form": "trace", "path": path, "from_s": from_s, "to_s": to_s, **keys}}


def test_seeds_that_overlap_are_refused_by_both_names():
    with pytest.raises(ValidationError, match=r"'train' and 'test' overlap: seeds 0..10 and 9..20"):
        LoadSet(train=split({"load": DIURNAL}), test=split({"load": DIURNAL}, begin=9, end=20))


def test_seed_ranges_that_touch_do_not_overlap():
    made = LoadSet(
        train=split({"load": DIURNAL}), validation=split({"load": DIURNAL}, begin=10, end=20)
    )
    assert [name for name, _ in made.splits()] == ["train", "validation"]


@pytest.mark.parametrize("path", ["day", "day.csv", "traces/day.csv"])
def test_windows_of_a_trace_that_overlap_are_refused_however_it_is_named(path):
    message = r"'train' and 'test' overlap: 'trace' takes 0..600 s .* 'trace' takes 599..end s"
    with pytest.raises(ValidationError, match=message):
        LoadSet(train={"loads": [trace("day", 0, 600)]}, test={"loads": [trace(path, 599)]})


def test_windows_apart_and_days_apart_are_accepted():
    LoadSet(train={"loads": [trace("day", 0, 600)]}, test={"loads": [trace("day", 600)]})
    LoadSet(train={"loads": [trace("day")]}, test={"loads": [trace("other")]})


def test_a_trace_inside_a_sum_cannot_hide():
    hidden = {"load": {"form": "sum", "parts": [trace("day", 100)["load"], {"form": "constant"}]}}
    with pytest.raises(ValidationError, match=r"takes 100\.\.end s of trace 'day'"):
        LoadSet(train={"loads": [hidden]}, test={"loads": [trace("day", 500)]})


def test_the_same_load_without_randomness_cannot_train_and_test():
    steady = {"loads": [{"load": {"form": "constant"}}]}
    with pytest.raises(ValidationError, match="'constant' is in both and the same for every seed"):
        LoadSet(train=steady, test=steady)


def test_noise_on_a_trace_needs_seeds_apart_as_well():
    noisy = {"noise_cv": 0.1}
    with pytest.raises(ValidationError, match="overlap: seeds"):
        LoadSet(train=split(trace("day", 0, 600, **noisy)), test=split(trace("day", 600, **noisy)))


def test_random_loads_need_seeds():
    with pytest.raises(ValidationError, match=r"'diurnal' is random and the split has no seeds"):
        LoadSet(train={"loads": [{"load": DIURNAL}]})


def test_names_within_a_split_differ():
    with pytest.raises(ValidationError, match="two loads are named 'diurnal'"):
        LoadSet(train=split({"load": DIURNAL}, {"load": DIURNAL}))
    LoadSet(train=split({"load": DIURNAL}, {"load": DIURNAL, "name": "again"}))


def test_a_seed_range_is_not_empty_and_a_set_has_a_split():
    with pytest.raises(ValidationError, match="to is 3, expected more than from 3"):
        LoadSet(train=split({"load": DIURNAL}, begin=3, end=3))
    with pytest.raises(ValidationError, match="it has no split"):
        LoadSet()


def test_training_seeds_wrap_inside_their_own_range_for_ever():
    sampler = LoadSampler(LoadSet(train=split({"load": DIURNAL}, begin=5, end=8)))
    assert [sampler.draw("train", index).seed for index in range(7)] == [5, 6, 7, 5, 6, 7, 5]
    first, label = sampler.sample("train", 1, 60)
    again, _ = sampler.sample("train", 4, 60)
    other, _ = sampler.sample("train", 2, 60)
    assert label == "diurnal#6"
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_draws_follow_the_weights_and_repeat():
    loads = ({"load": DIURNAL, "weight": 3}, {"load": {"form": "burst"}})
    sampler = LoadSampler(LoadSet(train=split(*loads)))
    names = [sampler.draw("train", index).name for index in range(4000)]
    assert Counter(names)["diurnal"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert names == [sampler.draw("train", index).name for index in range(4000)]


def test_evaluation_takes_every_load_with_every_seed():
    loads = ({"load": DIURNAL}, {"load": {"form": "burst"}})
    sampler = LoadSampler(LoadSet(test=split(*loads, begin=10, end=13)))
    assert [[cell.label for cell in row] for row in sampler.cells("test")] == [
        ["diurnal#10", "diurnal#11", "diurnal#12"],
        ["burst#10", "burst#11", "burst#12"],
    ]
    assert [len(row) for row in sampler.cells("test", seeds=2)] == [2, 2]
    with pytest.raises(LoadError, match="test split has 3 seeds"):
        sampler.cells("test", seeds=4)
    with pytest.raises(LoadError, match="no train split"):
        sampler.cells("train")


def test_a_missing_trace_is_refused_before_anything_is_drawn(tmp_path):
    with pytest.raises(LoadError, match="there is no trace 'day'"):
        LoadSampler(LoadSet(train={"loads": [trace("day")]}), tmp_path)


def test_a_sampler_replays_a_trace_beside_its_config(tmp_path):
    (tmp_path / "day.csv").write_text("t_seconds,rate\n0,0.5\n60,0.5\n")
    sampler = LoadSampler(LoadSet(test={"loads": [trace("day")]}), tmp_path)
    made, label = sampler.sample("test", 0, 120)
    assert label == "trace#0"
    assert made.tolist() == [0.5] * 120


def test_a_shipped_load_is_meant_by_its_name_and_resolves_to_itself():
    made = LoadSet(train=split("diurnal-bursts", {"load": "markov", "weight": 2}))
    assert made.train is not None
    assert [entry.name for entry in made.train.loads] == ["diurnal-bursts", "markov"]
    resolved = made.model_dump(mode="json", by_alias=True)
    assert LoadSet.model_validate(resolved) == made


def test_an_unknown_shipped_load_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="Did you mean 'diurnal-bursts'"):
        LoadSet(train=split("diurnal-burst"))


@pytest.mark.parametrize("name", config.names("loads"))
def test_shipped_loads_are_described_and_stay_near_the_reference_rate(name):
    found = config.load_model(LoadConfig, "loads", name)
    assert found.description.endswith(".")
    if name.startswith("worldcup98"):
        assert is_seeded(found.load)
        return
    sampler = LoadSampler(LoadSet(train=split({"load": found.load}, end=20)))
    for index in range(20):
        made, _ = sampler.sample("train", index, 7200)
        assert 0 <= made.min() <= made.max() < 2.5
        assert math.isfinite(made.sum())


def test_a_wrong_key_in_a_load_file_is_named(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("load:\n  form: diurnal\n  perod_s: 60\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: unknown key.*perod_s.*'period_s'"):
        config.load_model(LoadConfig, "loads", file)
