"""One write for every release of the operator: what its definition takes, as it stands there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsp_gym.backends.kubernetes.overrides import KEY, Override
from dsp_gym.loop.protocols import ActuatorStatus
from tests.fakes.kubernetes_api import served_kubernetes
from tests.flink_resources import MAP, SINK, SOURCE, deployment
from tests.unit.backends.kubernetes.conftest import KIND, Rig

TEXTS_ONLY = {"1.10": True, "1.11": True, "1.12": True, "1.13": False, "1.14": False, "1.15": False}
"""Whether a release defines `flinkConfiguration` as a map of texts; later ones leave it open."""

TEXTS: dict[str, dict[str, Any]] = {
    "none": {},
    "text": {KEY: f"{SOURCE}:4,{MAP}:1"},
    "entries": {f"{KEY}.{MAP}": "1"},
}
OPEN: dict[str, dict[str, Any]] = {
    **TEXTS,
    "map": {KEY: {MAP: 1}},
    "nested text": {"pipeline": {"jobvertex-parallelism-overrides": f"{MAP}:1"}},
    "nested entries": {"pipeline": {f"jobvertex-parallelism-overrides.{MAP}": 1}},
}
CASES = [
    (release, spelling)
    for release, texts in TEXTS_ONLY.items()
    for spelling in (TEXTS if texts else OPEN)
]


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    release, spelling = request.param
    with served_kubernetes(strings_only=TEXTS_ONLY[release]) as fake:
        fake.put(deployment(configuration=OPEN[spelling]))
        made = Rig(fake, tmp_path)
        yield made
        for actuator in made.made:
            actuator.close()


@pytest.mark.parametrize("rig", CASES, ids=" ".join, indirect=True)
def test_every_release_takes_what_is_written_and_finds_it_where_it_stood(rig, operator):
    def found() -> Override:
        return Override.of(rig.fake.object(KIND, "words")["spec"]["flinkConfiguration"])

    before = found()
    assert rig.ask(rig.act(), 3) == ActuatorStatus.REACHED
    assert rig.job.running() == {"source": 4, "map": 3, "sink": 1}
    assert dict(found().values) == {SOURCE: 4, MAP: 3, SINK: 1}
    assert found().form == ("flat" if before.form == "none" else before.form)
    assert [request.code for request in rig.patches()] == [200]
