"""A user's own program, as its jobs are submitted: what Flink does not say of a running job."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from dsp_gym.config.model import ConfigModel


class UserProgram(ConfigModel):
    """How a job of the user's own is submitted, so that it can be submitted again.

    Under the adaptive scheduler Flink takes the parallelism of each vertex beside the submission.
    Under any other the program takes it, from arguments with the names of vertices in braces. (The
    option pipeline.jobvertex-parallelism-overrides has no effect there: FLINK-38770.)
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    jar: str = Field(
        min_length=1,
        description="path of the jar on this machine, or name or id of one that the cluster has",
    )
    entry_class: str | None = Field(
        None, min_length=1, description="main class; none: that of the jar's manifest"
    )
    arguments: tuple[str, ...] = Field(
        (),
        description="program arguments, word by word; {VERTEX} is the number of tasks that the "
        "vertex of that name, as in the job file, is to have",
    )
    parallelism: int | None = Field(
        None,
        ge=1,
        le=32768,
        description="default parallelism that the job is submitted with; it decides which "
        "operators Flink chains. None: the cluster's",
    )
    settings: dict[str, str] = Field(
        default_factory=dict,
        description="Flink's options of the submission, such as state.backend.type: rocksdb",
    )
