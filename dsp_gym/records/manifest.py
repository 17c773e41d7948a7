"""`manifest.json` of a recording: which runs it holds, and whether they are whole."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.records.base import MANIFEST, Body, Manifest

__all__ = [
    "MANIFEST",
    "RECORDING_SCHEMA",
    "Event",
    "EventKind",
    "RecordedLoad",
    "RecordingManifest",
    "RunRecord",
]

RECORDING_SCHEMA: Literal["dsp-gym/recording/1"] = "dsp-gym/recording/1"

EventKind = Literal[
    "submitted",
    "running",
    "decision",
    "rescale_asked",
    "rescale_done",
    "savepoint",
    "stopped",
    "failure",
]


class RecordedLoad(ConfigModel):
    """What was offered: a rate that holds from each step to the next."""

    name: str = Field(min_length=1, description="as the plan names it")
    steps: tuple[tuple[float, float], ...] = Field(
        min_length=1,
        description="[second since t_load_s of the run, records/s over all sources]; first at 0",
    )
    saturated: bool = Field(
        False, description="true: meant to exceed what the job can take, so it shows its capacity"
    )

    @model_validator(mode="after")
    def _begins_at_zero(self) -> RecordedLoad:
        times = [t_s for t_s, _ in self.steps]
        if times[0] != 0 or any(b <= a for a, b in pairwise(times)):
            raise ValueError(f"steps must begin at 0 and rise, found {times[:5]}")
        return self

    def rate_at(self, t_s: float) -> float:
        """Look up the offered rate at a second after the load began.

        Returns:
            Records/s over all sources; 0 before the load began.
        """
        return next((rate for start, rate in reversed(self.steps) if start <= t_s), 0.0)


class RunRecord(ConfigModel):
    """One run: one job from a submission to its end. Times are seconds since recording began."""

    name: str = Field(min_length=1, description="unique in the recording")
    parallelism: dict[str, int] = Field(description="by vertex, when the run began")
    memory_level: dict[str, int] = Field(description="by vertex; -1: no managed memory")
    load: RecordedLoad = Field(description="offered load")
    repeat: int = Field(0, ge=0, description="number among runs that are otherwise equal")
    seed: int = Field(0, ge=0, description="seed of the load and of the job's records")
    status: Literal["complete", "aborted"] = Field("complete", description="aborted: ended early")
    cause: str | None = Field(None, description="why it was aborted")
    attempt: int = Field(1, ge=1, description="1 unless an earlier attempt failed")
    t_begin_s: float = Field(description="when it was submitted")
    t_load_s: float = Field(description="when its load began")
    t_running_s: float | None = Field(description="when every subtask ran; none: never")
    t_end_s: float = Field(description="when it was stopped or failed")
    samples: str = Field(description="file in the recording's folder")
    rows: int = Field(ge=0, description="rows of that file")
    sha256: str = Field(description="of that file")
    gaps: tuple[tuple[float, float], ...] = Field(
        (), description="spans between t_running_s and t_end_s from which no sample is known"
    )


class RecordingManifest(Manifest):
    """The whole document."""

    SCHEMA = RECORDING_SCHEMA
    ABSENT = "is no recording: it holds no manifest.json"
    REMEDY = "Name a folder that `dsp-gym record` wrote."

    schema_: Literal["dsp-gym/recording/1"] = Field(RECORDING_SCHEMA, alias="schema")
    job: str = Field(min_length=1, description="name of the job in job.yaml")
    started_unix_s: float | None = Field(
        None, description="Unix time of second 0; none: the clock is a simulation's"
    )
    versions: dict[str, str] = Field(default_factory=dict, description="of what made it")
    plan_sha256: str | None = Field(None, description="of the plan it follows; none: no plan")
    populated: Body | None = Field(
        None, description="savepoint that runs start from: location, bytes, seconds"
    )
    events: int = Field(0, ge=0, description="lines of events.jsonl")
    runs: tuple[RunRecord, ...] = Field((), description="in the order they ended")

    @model_validator(mode="after")
    def _names_are_unique(self) -> RecordingManifest:
        names = [run.name for run in self.runs]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two runs are named {twice[0]!r}")
        return self


class Event(ConfigModel):
    """One line of `events.jsonl`."""

    t_s: float = Field(description="seconds since the recording began")
    run: str = Field(description="name of the run; empty: before the first run")
    kind: EventKind = Field(description="what happened")
    body: Body = Field(default_factory=dict, description="details of the event")

    def line(self) -> str:
        """As it stands in the file.

        Returns:
            One JSON object, keys sorted, ended by a newline.
        """
        return json.dumps(self.model_dump(mode="json"), sort_keys=True) + "\n"
