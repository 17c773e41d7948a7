"""Which jobs a dataset is of."""

from __future__ import annotations

import pytest

from dsp_gym.datasets.encoding import job_hash
from dsp_gym.job.catalog import load_job

FIRST_RELEASE = {
    "nexmark-q11": "ef8498f496f09958",
    "nexmark-q5": "666ac625526b6afd",
    "streambed-q1": "8af75cbfc8556d0d",
    "justin-write": "4adf6b5be5741d4c",
    "demeter-cars": "d66163294bb0a20f",
}
"""Hashes in the datasets of the first release."""


@pytest.mark.parametrize("job", FIRST_RELEASE)
def test_a_dataset_of_the_first_release_is_of_the_same_job(job):
    assert job_hash(load_job(job)) == FIRST_RELEASE[job]


def test_another_name_of_its_fit_is_another_job():
    spec = load_job("nexmark-q11")
    assert job_hash(spec.model_copy(update={"fit_script": "mine"})) != job_hash(spec)
