"""Train, validation and test loads that cannot overlap: apart in seeds, or apart in trace time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from dsp_gym.config.files import load_model
from dsp_gym.config.model import ConfigModel, refuse_repeated
from dsp_gym.loads.spec import LoadConfig, LoadSpec, TraceLoad, is_seeded, nodes

SplitName = Literal["train", "validation", "test"]


class SeedRange(ConfigModel):
    """Seeds from ``from`` up to, but not including, ``to``."""

    model_config = ConfigDict(populate_by_name=True)

    from_: int = Field(alias="from", ge=0, description="first seed")
    to: int = Field(gt=0, lt=2**63, description="seed after the last")

    @model_validator(mode="after")
    def _check_order(self) -> SeedRange:
        if self.to <= self.from_:
            raise ValueError(f"to is {self.to}, expected more than from {self.from_}")
        return self

    def __len__(self) -> int:
        return self.to - self.from_


class WeightedLoad(ConfigModel):
    """A load of a split; written as a name alone, it is the shipped load of that name."""

    name: str = Field(min_length=1, description="label in results; the file's name, or the form")
    load: LoadSpec = Field(description="a load, or the name or path of a file that holds one")
    weight: float = Field(
        1.0, gt=0, description="share of the draws, relative to the others; evaluation takes all"
    )

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, data: object) -> object:
        # Three ways to write an entry: a name, a mapping with a name as load, or with a load.
        entry = {"load": data} if isinstance(data, str) else data
        if not isinstance(entry, dict) or "load" not in entry:
            return entry
        load = entry["load"]
        if isinstance(load, str):
            spec = load_model(LoadConfig, "loads", load).load
            return {"name": Path(load).stem, **entry, "load": spec}
        form = load.get("form") if isinstance(load, dict) else getattr(load, "form", None)
        return {"name": form, **entry} if isinstance(form, str) else entry


class LoadSplit(ConfigModel):
    """The loads of one purpose."""

    loads: tuple[WeightedLoad, ...] = Field(min_length=1, description="loads to draw from")
    seeds: SeedRange | None = Field(
        None,
        description="seeds of this split; none only where every load is a trace without noise, "
        "or the same for every seed",
    )

    @model_validator(mode="after")
    def _check(self) -> LoadSplit:
        names = [entry.name for entry in self.loads]
        refuse_repeated(names, "two loads are named '{}'; give each its own name")
        random = [entry.name for entry in self.loads if is_seeded(entry.load)]
        if random and self.seeds is None:
            raise ValueError(
                f"the load '{random[0]}' is random and the split has no seeds; "
                "add seeds: {from: 0, to: 1000}"
            )
        return self


class LoadSet(ConfigModel):
    """The loads of an experiment. No two splits share a seed, a stretch of a trace, or a load."""

    train: LoadSplit | None = Field(None, description="loads to learn from")
    validation: LoadSplit | None = Field(None, description="loads to choose the best policy by")
    test: LoadSplit | None = Field(None, description="loads to report, unseen before")

    @model_validator(mode="after")
    def _check_apart(self) -> LoadSet:
        present = list(self.splits())
        if not present:
            raise ValueError("it has no split; expected train, validation or test")
        for (one, first), (other, second) in combinations(present, 2):
            for problem in _overlaps(first, second):
                raise ValueError(f"'{one}' and '{other}' overlap: {problem}")
        return self

    def splits(self) -> Iterator[tuple[SplitName, LoadSplit]]:
        """Iterate over the splits that exist, with their names.

        Returns:
            Pairs of name and split.
        """
        named: list[tuple[SplitName, LoadSplit | None]] = [
            ("train", self.train),
            ("validation", self.validation),
            ("test", self.test),
        ]
        yield from ((name, split) for name, split in named if split is not None)


def _overlaps(first: LoadSplit, second: LoadSplit) -> Iterator[str]:
    # Three ways to leak test loads into training: seeds, stretches of a trace, equal loads.
    yield from _shared_seeds(first, second)
    for one, other in product(first.loads, second.loads):
        yield from _shared_trace_time(one, other)
        # Equal loads without a seed would be the same test in both splits.
        if one.load == other.load and not is_seeded(one.load) and not _traces(one.load):
            yield (
                f"the load '{one.name}' is in both and the same for every seed; "
                "change one, or give it noise_cv"
            )


def _shared_seeds(first: LoadSplit, second: LoadSplit) -> Iterator[str]:
    # Seeds that shape no load may be shared.
    if any(not any(is_seeded(entry.load) for entry in split.loads) for split in (first, second)):
        return
    one, other = first.seeds, second.seeds
    if one and other and one.from_ < other.to and other.from_ < one.to:
        yield f"seeds {one.from_}..{one.to} and {other.from_}..{other.to} (the end excluded)"


def _shared_trace_time(one: WeightedLoad, other: WeightedLoad) -> Iterator[str]:
    # Traces are compared by file stem, wherever they lie: copies are the same recording.
    for a, b in product(_traces(one.load), _traces(other.load)):
        # Half-open windows: one may begin where the other ends.
        a_to, b_to = (math.inf if x.to_s is None else x.to_s for x in (a, b))
        if Path(a.path).stem == Path(b.path).stem and a.from_s < b_to and b.from_s < a_to:
            yield (
                f"'{one.name}' takes {_window(a)} of trace '{a.path}' and '{other.name}' takes "
                f"{_window(b)} of '{b.path}'"
            )


def _traces(spec: LoadSpec) -> list[TraceLoad]:
    return [node for node in nodes(spec) if isinstance(node, TraceLoad)]


def _window(trace: TraceLoad) -> str:
    return f"{trace.from_s:g}..{'end' if trace.to_s is None else format(trace.to_s, 'g')} s"
