"""Draws of loads: without end from the training split, one by one from the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.errors import LoadError, did_you_mean
from dsp_gym.loads.generate import CHOICE, philox, rates
from dsp_gym.loads.spec import LoadSpec, TraceLoad, nodes
from dsp_gym.loads.splits import LoadSet, LoadSplit, SplitName
from dsp_gym.loads.traces import TraceLibrary


@dataclass(frozen=True, slots=True)
class LoadCell:
    """One load with one seed: the unit on which policies are compared."""

    name: str
    load: LoadSpec
    seed: int

    @property
    def label(self) -> str:
        """The cell's name in results."""
        return f"{self.name}#{self.seed}"


class LoadSampler:
    """A maker of the loads of a set; it reads and checks every trace when it is built.

    Args:
        loads: The splits.
        base_dir: Folder in which relative trace paths start; the current directory when None.
    """

    def __init__(self, loads: LoadSet, base_dir: str | Path | None = None) -> None:
        self._traces = TraceLibrary(base_dir)
        self._splits: dict[str, LoadSplit] = dict(loads.splits())
        self._shares: dict[str, Floats] = {}
        # Shares of the draws, cumulated, for a search by a uniform number.
        for name, split in self._splits.items():
            weights = np.array([entry.weight for entry in split.loads])
            self._shares[name] = np.cumsum(weights / weights.sum())
            for entry in split.loads:
                for node in nodes(entry.load):
                    if isinstance(node, TraceLoad):
                        self._traces.get(node.path, node.columns)

    def sample(
        self, split: SplitName, index: int, duration_s: float, dt_s: float = 1.0
    ) -> tuple[Floats, str]:
        """Return rates and label of the split's draw number `index`.

        The index may be any number from 0 on: seeds wrap around inside the split's range.

        Returns:
            (seconds,) multipliers of the job's reference rate, and the cell's label.
        """
        cell = self.draw(split, index)
        return self.rates(cell, duration_s, dt_s), cell.label

    def draw(self, split: SplitName, index: int) -> LoadCell:
        """Return the cell of draw number `index`; a load is chosen by its weight.

        Returns:
            The load and its seed.
        """
        if index < 0:
            raise LoadError("draws are numbered from 0 on", key="index", value=index)
        chosen = self._split(split)
        # A draw number beyond the range wraps around: training never runs out of seeds.
        seeds = chosen.seeds
        seed = index if seeds is None else seeds.from_ + index % len(seeds)
        # The choice of a load must not shift the seeds, so it has a separate stream.
        place = 0
        if len(chosen.loads) > 1:
            share = philox(index, 0, CHOICE).random()
            place = int(np.searchsorted(self._shares[split], share, side="right"))
        # Rounding may leave the last cumulated share below 1.
        entry = chosen.loads[min(place, len(chosen.loads) - 1)]
        return LoadCell(entry.name, entry.load, seed)

    def cells(self, split: SplitName, seeds: int | None = None) -> list[list[LoadCell]]:
        """List every load of a split (rows) with every seed of its range (columns).

        Args:
            split: Name of the split.
            seeds: Take only that many seeds, the first ones; all when None.

        Returns:
            One list per load with one cell per seed.
        """
        chosen = self._split(split)
        # A split without seeds has one draw per load.
        span = range(1) if chosen.seeds is None else range(chosen.seeds.from_, chosen.seeds.to)
        if seeds is not None and not 1 <= seeds <= len(span):
            raise LoadError(f"the {split} split has {len(span)} seeds", key="seeds", value=seeds)
        return [
            [LoadCell(entry.name, entry.load, seed) for seed in span[:seeds]]
            for entry in chosen.loads
        ]

    def rates(self, cell: LoadCell, duration_s: float, dt_s: float = 1.0) -> Floats:
        """Compute the rates of one cell, as multipliers of the job's reference rate.

        Returns:
            (seconds,) multipliers.
        """
        return rates(
            cell.load, seed=cell.seed, duration_s=duration_s, dt_s=dt_s, traces=self._traces
        )

    def _split(self, split: str) -> LoadSplit:
        if split not in self._splits:
            raise LoadError(f"there is no {split} split", remedy=did_you_mean(split, self._splits))
        return self._splits[split]
