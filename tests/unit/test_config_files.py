from __future__ import annotations

import errno
import os
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, model_validator

from dsp_gym.config import (
    ConfigModel,
    configs_root,
    find,
    names,
    parse,
    read_yaml,
    write_atomic,
)
from dsp_gym.config.kinds import KINDS, kind_of, model_of
from dsp_gym.errors import ConfigError, GraphError, StorageError
from dsp_gym.experiments.experiment import FamilyConfig
from dsp_gym.job.catalog import load_job


class Linear(ConfigModel):
    form: Literal["linear"] = "linear"


class Power(ConfigModel):
    form: Literal["power"]
    exponent: float = Field(description="fitted, no unit", gt=0)


class Edge(ConfigModel):
    from_: str = Field(alias="from")


class Node(ConfigModel):
    name: str
    curve: Annotated[Linear | Power, Field(discriminator="form")] = Linear()
    window: Power | None = None
    inputs: list[Edge] = Field(default_factory=list)

    @model_validator(mode="after")
    def _reads_others_only(self) -> Node:
        if self.name in [edge.from_ for edge in self.inputs]:
            raise GraphError(f"vertex '{self.name}' reads from itself")
        if not self.name.islower():
            raise ValueError(f"name '{self.name}' is expected in lower case")
        return self


class Graph(ConfigModel):
    nodes: list[Node]
    named: dict[str, Power] = Field(default_factory=dict)
    metrics_window_s: float = Field(120.0, gt=0, description="window of the metrics, seconds")


def message(tmp_path: Path, text: str) -> str:
    path = tmp_path / "g.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        parse(Graph, read_yaml(path), path)
    assert caught.value.file == str(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: []\nmetric_window_s: 1", "unknown key 'metric_window_s'. Did you mean 'metrics"),
        (
            "nodes: [{name: a, curve: {form: power, exponent: 1, exponnt: 2}}]",
            "unknown key 'nodes[0].curve.exponnt'. Did you mean 'exponent'?",
        ),
        ("nodes: []\nnamed: {x: {form: power, exponent: 1, frm: a}}", "Did you mean 'form'?"),
        ("nodes: [{name: a, inputs: [{form: b}]}]", "Did you mean 'from'?"),
        (
            "nodes: [{name: a, curve: {form: power, exponent: fast}}]",
            "key 'nodes[0].curve.exponent': value 'fast': expected a valid number",
        ),
        ("nodes: []\nmetrics_window_s: -1e3", "value -1000.0: expected greater than 0. It is: win"),
        ("nodes: []\nmetrics_window_s: .nan", "value nan: expected a finite number"),
        ("nodes: []\nmetrics_window_s: .inf", "value inf: expected a finite number"),
        ("metrics_window_s: 5", "the key 'nodes' is missing"),
        ("nodes: [{window: {form: power}, name: a}]", "key 'nodes[0].window': the key 'exponent'"),
        ("nodes: [{name: A}]", "key 'nodes[0]': name 'A' is expected in lower case"),
        ("nodes: [{name: a, inputs: [{from: a}]}]", "vertex 'a' reads from itself"),
        ("nodes: []\nmetrics_window_s: 1\nnodes: []", "key 'nodes': line 3: already given in li"),
        ("nodes: [}", "line 1, column 9: is not valid YAML: expected the node content, but found"),
        ("nodes:\n\t- a", r"line 2, column 1: is not valid YAML: found character '\t' that cannot"),
        (
            "nodes: [1\nb: 2",
            "line 2, column 2: is not valid YAML: expected ',' or ']', but got ':'",
        ),
        ("nodes: *x", "line 1, column 8: is not valid YAML: found undefined alias 'x'"),
        ("nodes: [{x: 1,\n  x: 2}]", "key 'x': line 2: already given in line 1. Keep one of"),
        ("nodes: !!python/object:os.system []", "line 1, column 8: is not valid YAML"),
        ("- 1", "holds a list, expected a mapping of keys"),
        ("", "is empty, expected a mapping of keys"),
    ],
)
def test_a_wrong_file_is_refused_with_key_value_and_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert expected in message(tmp_path, text)


def test_an_error_of_ours_raised_while_validating_keeps_its_type(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"^g\.yaml: vertex 'a' reads from itself$"):
        parse(Graph, {"nodes": [{"name": "a", "inputs": [{"from": "a"}]}]}, "g.yaml")


def test_several_faults_are_told_at_once_but_fit_a_screen(tmp_path: Path) -> None:
    nodes = "\n".join(f"- {{name: a, nam: {i}}}" for i in range(40))
    lines = message(tmp_path, f"nodes:\n{nodes}").splitlines()
    assert lines[0] == "40 things are wrong:"
    assert lines[-1] == "  and 35 more"
    assert len(lines) == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1e6),
        ("2.25e6", 2.25e6),
        (".5", 0.5),
        ("-3", -3),
        ("1_000", 1000),
        ("010", 10),
        ("off", "off"),
        ("true", True),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("1.5.0", "1.5.0"),
        ("null", None),
        ("~", None),
    ],
)
def test_scalars_mean_what_they_look_like(tmp_path: Path, text: str, value: object) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"x: {text}", encoding="utf-8")
    found = read_yaml(path)
    assert found == {"x": value}
    assert isinstance(found, dict)
    assert type(found["x"]) is type(value)


def test_merged_keys_may_be_overridden(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n", encoding="utf-8")
    assert read_yaml(path) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_yaml(path)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "configs"
    (root / "jobs").mkdir(parents=True)
    (root / "jobs" / "nexmark-q11.yaml").write_text("job: q11\n", encoding="utf-8")
    monkeypatch.setattr("dsp_gym.config.files.configs_root", lambda: root)
    return root


def test_a_configuration_is_found_by_name_and_by_path(shipped: Path, tmp_path: Path) -> None:
    assert names("jobs") == ["nexmark-q11"]
    assert find("jobs", "nexmark-q11") == shipped / "jobs" / "nexmark-q11.yaml"
    own = tmp_path / "mine.yaml"
    own.write_text("job: mine\n", encoding="utf-8")
    assert find("jobs", own) == own


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nexmark-q12", "there is no shipped configuration 'nexmark-q12' of kind 'jobs'. Did you"),
        ("elsewhere/nexmark-q11.yaml", "no such file. Did you mean the shipped 'nexmark-q11'?"),
        ("elsewhere/zzz.yaml", "no such file. Choose from: nexmark-q11."),
    ],
)
def test_an_unknown_name_offers_what_there_is(shipped: Path, name: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find("jobs", name)
    assert expected in str(caught.value)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown kind 'job'"):
        names("job")
    with pytest.raises(ConfigError, match="unknown kind 'job'"):
        model_of("job")


def test_the_nearest_folder_tells_the_kind() -> None:
    assert kind_of(Path("configs/jobs/a.yaml")) == "jobs"
    assert kind_of(Path("jobs/loads/a.yaml")) == "loads"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_a_frozen_model_whose_fields_are_described(kind: str) -> None:
    model = model_of(kind)
    assert issubclass(model, ConfigModel)
    assert model.model_config["frozen"]
    assert model.model_config["extra"] == "forbid"
    bare = [name for name, field in model.model_fields.items() if not field.description]
    assert not bare


def test_shipped_configurations_stand_in_folders_of_known_kinds() -> None:
    kinds = {kind_of(path) for path in configs_root().rglob("*.yaml")}
    assert kinds <= set(KINDS)


def test_a_file_is_written_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "a.txt"
    write_atomic(target, "one")
    write_atomic(target, b"two")
    assert target.read_bytes() == b"two"
    assert os.listdir(target.parent) == ["a.txt"]
    assert target.stat().st_mode & 0o777 == 0o666 & ~_umask()


def test_a_private_file_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a.txt", "one", private=True)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("number", "is_told"), [(errno.EINVAL, False), (errno.EACCES, False), (errno.EIO, True)]
)
def test_the_folder_is_synced_after_the_file_has_taken_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_told: bool
) -> None:
    synced: list[tuple[bool, list[str]]] = []
    first = os.fsync

    def sync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append((is_folder, sorted(os.listdir(tmp_path))))
        first(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    write_atomic(tmp_path / "a.txt", "one")
    assert [is_folder for is_folder, _ in synced] == [False, True]
    assert synced[1][1] == ["a.txt"]

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        first(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError) if is_told else nullcontext():
        write_atomic(tmp_path / "a.txt", "two")
    assert (tmp_path / "a.txt").read_text() == "two"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.txt"
    write_atomic(target, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"a\.txt: cannot be written: No space left on device"):
        write_atomic(target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_that_is_a_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        write_atomic(tmp_path / "a" / "b.txt", "new")


def test_a_family_has_graphs_of_every_size_and_others_to_choose_by():
    family = FamilyConfig(graphs=40, vertices=(2, 16), validation_graphs=10)
    names = family.names()
    assert len(set(names)) == 40
    sizes = {int(name.split(":")[2]) for name in names if name.count(":") == 2}
    assert sizes == set(range(2, 17))
    assert not {n.split(":")[1] for n in names} & {
        n.split(":")[1] for n in family.names(validation=True)
    }


def test_the_graphs_of_a_family_differ_in_their_outages():
    family = FamilyConfig(graphs=40, validation_graphs=8, outage=(0.25, 4))
    for validation in (False, True):
        specs = family.specs(validation=validation)
        plain = [load_job(name) for name in family.names(validation=validation)]
        factors = [
            one.rescale.outage_s[1] / other.rescale.outage_s[1]
            for one, other in zip(specs, plain, strict=True)
        ]
        assert all(0.25 <= factor <= 4 for factor in factors)
        assert min(factors) < 0.8
        assert max(factors) > 1.25
        assert [one.vertices for one in specs] == [one.vertices for one in plain]
        assert specs == family.specs(validation=validation)
    same = FamilyConfig(graphs=4)
    assert same.specs() == [load_job(name) for name in same.names()]


def test_the_graphs_of_a_family_differ_in_their_rates_and_need_as_many_tasks():
    family = FamilyConfig(graphs=40, rate=(0.32, 3.2))
    plain = [load_job(name) for name in family.names()]
    factors = []
    for one, other in zip(family.specs(), plain, strict=True):
        factors.append(one.source.rate_per_s / other.source.rate_per_s)
        for vertex, before in zip(one.vertices, other.vertices, strict=True):
            took = vertex.cpu_us_per_record / before.cpu_us_per_record
            assert took == pytest.approx(1 / factors[-1])
    assert 0.32 <= min(factors) < 0.5 < 2 < max(factors) <= 3.2
    rates = [one.source.rate_per_s for one in family.specs()]
    assert max(rates) / min(rates) > 40
    with pytest.raises(ValueError, match="rate must be 0 < low <= high <= 100"):
        FamilyConfig(rate=(2, 1))


@pytest.mark.parametrize("outage", [(0, 1), (2, 1), (-1, 1), (1, 101)])
def test_a_range_of_outages_that_does_not_rise_is_refused(outage):
    with pytest.raises(ValueError, match="outage must be 0 < low <= high <= 100"):
        FamilyConfig(outage=outage)
