"""Triples of a job, a load and a seed, drawn from a key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.errors import LoadError
from dsp_gym.evaluation.referee.config import (
    GENERATORS,
    DrawnFamily,
    JobKind,
    RefereeConfig,
)
from dsp_gym.job.draw import Draw
from dsp_gym.loads.generate import minute_means, rates
from dsp_gym.loads.sampler import LoadCell
from dsp_gym.loads.spec import LoadSpec
from dsp_gym.loads.template import filled, traces_of
from dsp_gym.loads.traces import TraceLibrary

SetName = Literal["development", "test", "own"]
"""Sets of triples: to choose on, to confirm on, and from a key of somebody's own."""

_JOB_SEEDS = {True: (100_000_000, 199_999_999), False: (200_000_000, 999_999_999)}
_LOAD_SEEDS = {True: (0, 2**40 - 1), False: (2**40, 2**48 - 1)}
"""Seeds, first and last, of the development set and of any other: they are apart whatever is drawn,
and those of jobs lie above all that anything was tuned or trained on."""


class Triple(NamedTuple):
    """One job under one load with one seed."""

    kind: str  # of the job
    family: str  # of the load
    job: str  # name that `load_job` takes
    load: LoadSpec
    seed: int

    @property
    def label(self) -> str:
        """The triple in results."""
        return f"{self.job} under {self.family}#{self.seed}"

    @property
    def cell(self) -> LoadCell:
        """The load with its seed."""
        return LoadCell(self.family, self.load, self.seed)


@dataclass(frozen=True, slots=True)
class DrawnSet:
    """The origin of all draws of a set."""

    name: SetName
    key: bytes  # 32 bytes
    commit: str | None = None  # whose test set it is

    @property
    def key_hash(self) -> str:
        """Hash of the key: it names the set without giving it away."""
        return hashlib.sha256(self.key).hexdigest()

    @classmethod
    def development(cls, seed: int) -> DrawnSet:
        """Return the set that everything is chosen on.

        Args:
            seed: The config's.

        Returns:
            The same set for the same seed.
        """
        return cls("development", hashlib.sha256(f"development {seed}".encode()).digest())

    @classmethod
    def test(cls, fingerprint: str, commit: str) -> DrawnSet:
        """Return the set of a commit: nobody knows it before the commit is made.

        Args:
            fingerprint: Of the referee.
            commit: Hash of the commit under evaluation.

        Returns:
            Another set for another commit.
        """
        key = hashlib.sha256(f"{fingerprint} {commit}".encode()).digest()
        return cls("test", key, commit)

    @classmethod
    def own(cls, file: Path) -> DrawnSet:
        """Return the set of a file of one's own.

        Args:
            file: Any content; a file nobody else has gives triples nobody else knows.

        Returns:
            Another set for another content.
        """
        return cls("own", hashlib.sha256(file.read_bytes()).digest())

    def draw(self, *purpose: str | int) -> Draw:
        """Return the numbers of one purpose, independent of all others.

        Args:
            purpose: What they are drawn for.

        Returns:
            Equal numbers for the same key and purpose.
        """
        text = "\0".join(map(str, purpose)).encode()
        digest = hashlib.sha256(self.key + b"\0" + text).digest()
        return Draw(int.from_bytes(digest[:16], "little"))


def triples_of(config: RefereeConfig, drawn: DrawnSet) -> dict[str, tuple[Triple, ...]]:
    """Draw all triples of a set.

    Every family of load has its own draws, and within it every kind of jobs: a family that is left
    out changes no other.

    Args:
        config: The referee.
        drawn: The set.

    Returns:
        Triples by family of load, the kinds of jobs in turn.
    """
    return {family.name: _of_family(config, family, drawn) for family in config.loads}


def _of_family(config: RefereeConfig, family: DrawnFamily, drawn: DrawnSet) -> tuple[Triple, ...]:
    each = family.triples // len(config.jobs)
    columns = [_of_kind(kind, family, drawn, each) for kind in config.jobs]
    return tuple(triple for row in zip(*columns, strict=True) for triple in row)


def _of_kind(kind: JobKind, family: DrawnFamily, drawn: DrawnSet, count: int) -> list[Triple]:
    fixed = drawn.name == "development"
    order = drawn.draw("order", family.name, kind.name).order(len(kind.named))
    found = []
    for place in range(count):
        draw = drawn.draw("triple", family.name, kind.name, place)
        job_seed, load_seed = draw.whole(*_JOB_SEEDS[fixed]), draw.whole(*_LOAD_SEEDS[fixed])
        if kind.generator is None:
            job = kind.named[order[place % len(order)]]
        else:
            job = GENERATORS[kind.generator](job_seed)
        found.append(Triple(kind.name, family.name, job, filled(family.load, draw), load_seed))
    return found


def same_law(
    config: RefereeConfig, family: DrawnFamily, base_dir: str | Path | None = None
) -> Floats:
    """Draw loads of a family that are in no set: all that could be learned of its law beforehand.

    Args:
        config: The referee.
        family: The family of load.
        base_dir: Folder that relative trace paths start from.

    Returns:
        (N, minutes) means, as multiples of a job's reference rate; as many as its triples.
    """
    traces, found = TraceLibrary(base_dir), []
    # The development set of another seed: no set has its loads.
    for one in _of_family(config, family, DrawnSet.development(config.development + 1)):
        seconds = rates(
            one.load, seed=one.seed, duration_s=config.episode_of(family), traces=traces
        )
        found.append(minute_means(seconds))
    return np.array(found)


def first_of_each_kind(triples: Sequence[Triple], count: int) -> tuple[Triple, ...]:
    """Return a part of a family with as many triples of each kind of jobs.

    Args:
        triples: Those of one family.
        count: Most triples of a kind.

    Returns:
        The first ones, in their order.
    """
    taken: dict[str, int] = {}
    found = []
    for triple in triples:
        taken[triple.kind] = taken.get(triple.kind, 0) + 1
        if taken[triple.kind] <= count:
            found.append(triple)
    return tuple(found)


def missing_traces(config: RefereeConfig, base_dir: str | Path | None = None) -> Mapping[str, str]:
    """Find the families whose traces are not all here.

    Args:
        config: The referee.
        base_dir: Folder that relative trace paths start from.

    Returns:
        The reason by family of load.
    """
    library = TraceLibrary(base_dir)
    found = {}
    for family in config.loads:
        for path in traces_of(family.load):
            try:
                library.get(path)
            except LoadError as error:
                found[family.name] = str(error)
                break
    return found
