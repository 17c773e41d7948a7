"""A job under Flink's adaptive scheduler, asked without a network: as several clients see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.errors import FlinkError

__all__ = ["AdaptiveJob", "DirectRest"]


class AdaptiveJob:
    """One job whose requirements come into effect at once, as far as there are slots."""

    def __init__(self, parallelism: Mapping[str, int], job_id: str = "a1") -> None:
        self.ids = {name: f"{number:032x}" for number, name in enumerate(parallelism, start=0xABC)}
        self.job_id, self.started_with = job_id, dict(parallelism)
        self.most: int | None = None  # tasks that a vertex gets, for want of TaskManagers
        self.is_adaptive, self.finished = True, False
        self.puts: list[dict[str, Any]] = []
        self.requirements = self.asking(parallelism)

    def asking(self, tasks: Mapping[str, int]) -> dict[str, Any]:
        """The requirements of some parallelism."""
        return {
            self.ids[name]: {"parallelism": {"lowerBound": 1, "upperBound": number}}
            for name, number in tasks.items()
        }

    def document(self, path: str) -> Any:
        """What is answered to GET; None: not found."""
        job, user = f"/jobs/{self.job_id}", {"slot-sharing": "per-vertex", "managed-mib": ""}
        user["parallelism"] = ",".join(f"{name}={n}" for name, n in self.started_with.items())
        found = {"jid": self.job_id, "name": "line", "state": "RUNNING", "start-time": 1000}
        answers = {
            "/jobs/overview": {"jobs": [found]},
            "/jars": {"files": []},
            "/overview": {"slots-available": 64, "flink-version": "2.1.0"},
            "/taskmanagers": {"taskmanagers": []},
            job: {**found, "end-time": -1, "timestamps": {"CREATED": 1000},
                  "vertices": [self._vertex(name) for name in self.ids]},
            f"{job}/status": {"status": "RUNNING"},
            f"{job}/checkpoints/config": {"interval": 5000},
            f"{job}/config": {"execution-config": {"user-config": user}},
            f"{job}/exceptions?maxExceptions=1": {"exceptionHistory": {"entries": []}},
        }  # fmt: skip
        if self.is_adaptive:
            answers[f"{job}/resource-requirements"] = self.requirements
        return answers.get(path)

    def put(self, path: str, body: dict[str, Any]) -> None:
        """Take requirements."""
        assert path == f"/jobs/{self.job_id}/resource-requirements"
        self.puts.append(body)
        self.requirements = body

    def _vertex(self, name: str) -> dict[str, Any]:
        asked = int(self.requirements[self.ids[name]]["parallelism"]["upperBound"])
        runs = asked if self.most is None else min(asked, self.most)
        state = "FINISHED" if self.finished and name == next(iter(self.ids)) else "RUNNING"
        return {"id": self.ids[name], "name": name, "parallelism": runs, "tasks": {state: runs}}


class DirectRest(FlinkRest):
    """Flink's REST interface in front of a job in this process."""

    def __init__(self, job: AdaptiveJob) -> None:
        super().__init__("http://127.0.0.1:1")
        self.to = job

    def get(self, path: str) -> Any:
        found = self.to.document(path)
        if found is None:
            raise FlinkError(f"GET {path} answered 404: Not found.", reason="NotFound")
        return found

    def put(self, path: str, body: object) -> Any:
        assert isinstance(body, dict)
        self.to.put(path, body)
        return {}
