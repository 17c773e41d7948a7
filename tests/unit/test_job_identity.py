"""The identity of the job behind a dataset, a policy or a result."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dsp_gym.evaluation.batch_of_runs import versions
from dsp_gym.job.catalog import job_hash, load_job

FIRST_RELEASE = {
    "nexmark-q1": "ac98fb9cdcb73772",
    "nexmark-q11": "ef8498f496f09958",
    "nexmark-q5": "666ac625526b6afd",
    "streambed-q1": "8af75cbfc8556d0d",
    "justin-write": "4adf6b5be5741d4c",
    "demeter-cars": "d66163294bb0a20f",
    "flink-wordcount": "0c64208a1a2a4012",
}
"""Hashes in the datasets, policies and results of the first release."""


@pytest.mark.parametrize("job", FIRST_RELEASE)
def test_a_dataset_of_the_first_release_is_of_the_same_job(job):
    assert job_hash(load_job(job)) == FIRST_RELEASE[job]


@pytest.mark.slow  # importing torch takes seconds
def test_a_policy_of_the_first_release_was_trained_on_the_same_jobs():
    from agents.provenance import job_hashes

    assert job_hashes(SimpleNamespace(jobs=tuple(FIRST_RELEASE))) == FIRST_RELEASE


def test_a_result_of_the_first_release_is_of_the_same_jobs():
    found = versions(tuple(map(load_job, FIRST_RELEASE)))
    assert {job: found[f"job {job}"] for job in FIRST_RELEASE} == FIRST_RELEASE


def test_another_name_of_its_fit_is_another_job():
    spec = load_job("nexmark-q11")
    assert job_hash(spec.model_copy(update={"fit_script": "mine"})) != job_hash(spec)
