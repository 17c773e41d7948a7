"""Two clusters whose jobs have one id, as in application mode, behind one Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dsp_gym.backends.discovery.document import Choices, job_file
from dsp_gym.backends.discovery.found import FoundJob
from dsp_gym.backends.discovery.prometheus import found_by_prometheus
from dsp_gym.backends.flink.backend import FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.patient import HistoryOptions, PatientSamples
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.errors import FlinkError
from dsp_gym.metrics.window import WindowConfig
from tests.real_flink import REAL_FLINK
from tests.zoo import APPLICATION, ZEROS, Zoo, open_applications, wait_until_all_run
from tests.zoo_readers import Difference, Look, compared

pytestmark = [*REAL_FLINK, pytest.mark.validate]

WINDOW = WindowConfig(window_s=30, stabilization_s=10)


@pytest.fixture(scope="module")
def applications(tmp_path_factory) -> Iterator[tuple[dict[str, Zoo], dict[str, str]]]:
    with open_applications(tmp_path_factory.mktemp("applications")) as (zoos, urls):
        for zoo in zoos.values():
            wait_until_all_run(zoo)
        time.sleep(WINDOW.window_s + WINDOW.stabilization_s)
        yield zoos, urls


def found_on(url: str, labels: str | None = None) -> dict[str, FoundJob]:
    source = PatientSamples(url, None, HistoryOptions(queries_per_s=1000), Labels.parse(labels))
    return {job.name: job for job in found_by_prometheus(source, time.time())}


def look_at(zoo: Zoo, name: str, url: str, found: FoundJob, labels: str | None = None) -> Look:
    spec = job_file(found, name, Choices(), time.time()).spec
    job = FlinkJob(zoo.cluster.rest, name, spec)
    source = PrometheusSamples(url, job, spec, labels=Labels.parse(labels))
    collector = FlinkCollector(spec, job, source, WINDOW)
    return Look(APPLICATION, name, found, spec, source, collector)


def wrong(zoo: Zoo, look: Look) -> list[Difference]:
    """What is read wrong of the job of a cluster; at least something was compared."""
    snapshot, samples, _ = look.collector.look(time.time())
    recent = samples.between(time.time() - WINDOW.window_s - 5.0, time.time())
    job = zoo.cluster.rest.job(ZEROS)
    seen = snapshot.job(0)
    numbers = list(compared(look, seen, recent, zoo.truth(APPLICATION), job, most_off_true=0.05))
    assert {one.metric for one in numbers} >= {"parallelism", "records/s", "selectivity"}
    return [one for one in numbers if one.is_wrong]


def test_jobs_of_one_id_are_told_apart_by_their_names(applications):
    zoos, urls = applications
    found = found_on(urls["two-names"])
    assert {(name, job.job_id) for name, job in found.items()} == {("eu", ZEROS), ("us", ZEROS)}
    for name, zoo in zoos.items():
        assert not wrong(zoo, look_at(zoo, name, urls["two-names"], found[name]))


def test_jobs_of_one_id_and_one_name_are_refused_with_the_label_to_add(applications):
    zoos, urls = applications
    with pytest.raises(FlinkError, match=r"cluster \('eu' and 'us'\)") as refused:
        found_on(urls["one-name"])
    assert 'cluster="' in str(refused.value.remedy)
    for name, zoo in zoos.items():
        chosen = f'cluster="{name}"'
        (found,) = found_on(urls["one-name"], chosen).values()
        assert not wrong(zoo, look_at(zoo, name, urls["one-name"], found, chosen))
        unchosen = look_at(zoo, name, urls["one-name"], found)
        with pytest.raises(FlinkError, match=r"cluster \('eu' and 'us'\)"):
            unchosen.source.samples(time.time() - 30.0, time.time())
