"""Reports of scaling in the shape of the operator's."""

from __future__ import annotations

import pytest

from dsp_gym.backends.kubernetes.events import ScalingReports, VertexChange, scaling_report
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.errors import KubernetesError
from tests.flink_resources import MAP, SINK, deployment

CHANGE = VertexChange(MAP, 2, 4, 100.0, 200.0, 150.0)


class Written:
    def __init__(self):
        self.events, self.trouble = [], None

    def create(self, kind, namespace, body):
        if self.trouble:
            raise self.trouble
        self.events.append(body)
        return body


@pytest.fixture
def written():
    return Written()


@pytest.fixture
def now():
    return [1.7e9]


@pytest.fixture
def reports(written, now):
    return ScalingReports(written, "dsp-gym-0", clock=lambda: now[0])


@pytest.fixture
def resource():
    body = deployment()
    body["metadata"]["uid"] = "u-1"
    return FlinkResource.parse(body)


def test_an_event_regards_the_resource_with_its_uid(reports, written, resource):
    assert reports.report(resource, [CHANGE], enacted=False)
    (event,) = written.events
    assert event["regarding"] == {
        "apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "namespace": "jobs",
        "name": "words", "uid": "u-1",
    }  # fmt: skip
    assert event["reason"] == "ScalingReport"
    assert event["eventTime"] == "2023-11-14T22:13:20.000000Z"
    assert f"{{ Vertex ID {MAP} | Parallelism 2 -> 4 | " in event["note"]
    assert event["metadata"]["namespace"] == "jobs"


def test_the_same_is_said_once_in_half_an_hour(reports, written, resource, now):
    said = []
    for minutes in (0, 10, 29, 31):
        now[0] = 1.7e9 + 60 * minutes
        said.append(reports.report(resource, [CHANGE], enacted=False))
    assert said == [True, False, False, True]
    assert reports.report(resource, [VertexChange(MAP, 2, 5)], enacted=False)
    assert reports.report(resource, [CHANGE], enacted=True)
    assert len(written.events) == 4


def test_after_the_clock_jumped_back_it_is_said_again(reports, resource, now):
    assert reports.report(resource, [CHANGE], enacted=False)
    now[0] -= 7200
    assert reports.report(resource, [CHANGE], enacted=False)


def test_what_asks_for_nothing_is_no_event(reports, written, resource):
    assert not reports.report(resource, [VertexChange(SINK, 2, 2)], enacted=False)
    assert not reports.report(resource, [], enacted=False)
    assert written.events == []


def test_an_event_that_could_not_be_written_is_tried_again(reports, written, resource):
    written.trouble = KubernetesError("no", reason="Forbidden")
    with pytest.raises(KubernetesError):
        reports.report(resource, [CHANGE], enacted=False)
    written.trouble = None
    assert reports.report(resource, [CHANGE], enacted=False)


def test_a_long_report_counts_what_does_not_fit():
    changes = [VertexChange(f"{n:032x}", 1, 2, 1.0, 2.0, 1.5) for n in range(40)]
    note = scaling_report(changes, enacted=True)
    assert len(note.encode()) <= 1024
    told = note.count("Vertex ID")
    assert note.endswith(f" and {40 - told} more")


def test_rates_nobody_knows_are_told_as_java_does():
    assert "capacity NaN -> NaN | Target data rate NaN" in str(VertexChange(MAP, 1, 2))
