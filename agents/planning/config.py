"""The configuration of planning: the price of lateness, and the starting point of the policy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from agents.planning.walk import WalkConfig
from dsp_gym.config.model import ConfigModel
from dsp_gym.sizing.service import SizingConfig


class MdpConfig(ConfigModel):
    """The price of lateness, and the starting point of the policy."""

    path: str | None = Field(
        None,
        min_length=1,
        description="folder of a trained policy, as `dsp-gym train` makes it, or `shipped:NAME` of "
        "one that travels with the package: its transitions, its "
        "price of a late minute and its other parameters stand in for the defaults here; none: "
        "the shipped transitions",
    )
    own_past: bool = Field(
        True,
        description="a job whose own past the policy was trained on starts from the times per "
        "record it had there; false: as any other job",
    )
    late_price: float = Field(
        2.5,
        gt=0,
        description="price of a late minute, in minutes of the configuration that carries the "
        "job's reference rate: the one knob between cost and lateness",
    )
    prior: Literal["job-file", "none"] = Field(
        "job-file",
        description="job-file: times per record start from the job file and are corrected by true "
        "rates; none: they are learned from true rates alone, and the policy holds until it has "
        "seen every vertex busy",
    )
    job_files: tuple[str, ...] = Field(
        (),
        description="job files to start from in place of those of the running jobs, found by their "
        "`job` name; a calibration, for instance",
    )
    transitions: str | None = Field(
        None,
        min_length=1,
        description="table of load transitions, made by `python -m "
        "agents.studies.planning BENCHMARK`; none: the trained policy's, or the shipped one",
    )
    walk: WalkConfig | None = Field(
        None,
        description="a law of the load by hand in place of a table: a walk that is pulled to a "
        "mean, with jumps; none: the table",
    )
    known_law: bool = Field(
        False,
        description="count the transitions on other seeds of the very loads to come, which an "
        "evaluation draws and no running job has: what knowledge of the law is worth",
    )
    rescale_price: float = Field(
        6.0,
        ge=0,
        description="price of a rescale beside its outage, in seconds of the same configuration; "
        "as the clairvoyant's",
    )
    headroom: float = Field(
        0.95,
        gt=0,
        le=1,
        description="share of a configuration's capacity that is counted on: service times vary "
        "and caches start cold",
    )
    noise: float = Field(
        0.03,
        gt=0,
        lt=1,
        description="standard deviation of the load about its level within a minute, as a share; "
        "assumed at first, then measured on the job's own last 90 minutes",
    )
    configurations: int = Field(
        24, ge=2, le=64, description="configurations of a job planned with, on its frontier"
    )
    horizon_h: float = Field(
        6.0, gt=0, description="prices after so many hours count for a third; a day has two turns"
    )
    neighbours: float = Field(
        40.0,
        gt=0,
        description="minutes that the transitions of neighbouring levels count for in a state; "
        "those that a walk counts for",
    )
    own_weight: float = Field(
        1.0,
        ge=0,
        description="what a minute of the job's own last two days counts for against a minute of "
        "the training loads; 0: its own history is left out",
    )
    law_memory_h: float = Field(
        24.0,
        gt=0,
        description="hours after which what a load did counts for a third in telling which of the "
        "trained laws it follows; of no effect with one law",
    )
    sizing: SizingConfig = Field(
        default_factory=SizingConfig, description="how times per record are learned"
    )

    @model_validator(mode="after")
    def _check_one_law(self) -> MdpConfig:
        if self.transitions is not None and self.walk is not None:
            raise ValueError("transitions and walk are two laws of one load; give one of them")
        if self.known_law and (self.transitions is not None or self.walk is not None):
            raise ValueError("known_law stands in for transitions and walk; leave these out")
        return self
