"""Episodes beside a job of the operator: the job as policies observe it."""

from __future__ import annotations

import pytest

from dsp_gym.backends.kubernetes import episodes
from dsp_gym.backends.kubernetes.episodes import KubernetesEpisodes, kubernetes_place
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig
from tests.living import Living
from tests.simulating import keyed

WHERE = {"namespace": "jobs", "name": "words", "prometheus_url": "http://127.0.0.1:9"}


def begun(**where):
    return KubernetesEpisodes(keyed(), kubernetes_place(WHERE | where), WindowConfig())


def test_without_a_route_for_memory_a_job_has_one_level():
    assert keyed().memory.levels > 1
    assert begun().topology.spec(0).memory.levels == 1
    assert begun(memory_route="job-arguments").topology.spec(0) == keyed()


def test_a_job_that_runs_at_another_level_than_its_file_starts_with_is_refused(monkeypatch):
    living = Living()
    monkeypatch.setattr(episodes, "connect", lambda *given, **more: running_at_level_1(living))
    made = begun()
    with pytest.raises(ConfigError, match=r"runs at another memory level.*memory\.start_level"):
        made.begin(seed=0)
    made.close()
    assert living.closed


def running_at_level_1(living):
    """A backend that sees the job with all its levels."""
    living.topology = Topology.of([keyed()])
    living.backend.platform.job = living
    return living.backend
