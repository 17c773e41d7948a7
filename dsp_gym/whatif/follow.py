"""Replays beside the journals of a folder: they follow what is appended, and say how they fare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.control.beside import TWINS_SCHEMA, write_twins
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.control.verdict_summary import VerdictSummary
from dsp_gym.errors import DspGymError
from dsp_gym.job.cost import refuse_free
from dsp_gym.records.journal import segments_of
from dsp_gym.records.shipped import folder_of
from dsp_gym.records.tail import JournalTail
from dsp_gym.whatif.backtest import job_result, terms_of, work_of
from dsp_gym.whatif.blocks import job_replay, observed_job
from dsp_gym.whatif.claims import model_errors
from dsp_gym.whatif.history import DAY_S, JobHistory
from dsp_gym.whatif.journal import JournalReader
from dsp_gym.whatif.journal_history import history_of_run
from dsp_gym.whatif.model import fitted
from dsp_gym.whatif.policies import ReplayedPolicy
from dsp_gym.whatif.replay import SEEDS, HistoryReplay, IntervalRows, PolicyRun
from dsp_gym.whatif.result import JobResult, Trust
from dsp_gym.whatif.summary import leading, verdict_summary

AT_ONCE = 200
"""Intervals between two documents of a replay that goes through a journal."""

KEPT = 720
"""Intervals of the curves: twelve hours at one a minute."""


def journals_in(folder: str | Path) -> list[Path]:
    """Find the journals of a folder: itself, or those of several jobs inside it.

    Returns:
        Folders in the order of their names; empty if there is no journal.
    """
    found = folder_of("journals", folder)
    if segments_of(found):
        return [found]
    return sorted(one for one in found.glob("*") if one.is_dir() and segments_of(one))


class Follower:
    """The replay of one journal that still grows.

    Args:
        folder: the journal's.
        seeds: predictions of each policy.
        trust: bounds of the model's error under which figures are shown.
    """

    def __init__(self, folder: Path, seeds: int = SEEDS, trust: Trust | None = None) -> None:
        self.folder, self.seeds, self.trust = folder, seeds, trust or Trust()
        self.history: JobHistory | None = None
        self.replay: HistoryReplay | None = None
        self.is_behind = False
        """Whether there is more to go through."""
        self._tail = JournalTail(folder)
        self._reader = JournalReader(folder)
        self._entrants: tuple[ReplayedPolicy, ...] = ()
        self._failures: dict[str, str] = {}
        self._configuration: object = None
        self._found: tuple[tuple[int, int], JobResult] | None = None  # as of which interval
        self._leader: str | None = None

    def look(self, *, final: bool = False, most: int | None = AT_ONCE) -> bool:
        """Take in what was appended, and go on.

        Args:
            final: whether nothing more will be appended.
            most: intervals to go through at most; None: all.

        Returns:
            Whether the replay has gone on.

        Raises:
            DspGymError: The journal or what it names cannot be read.
        """
        if not (self._read() or self.is_behind or final):
            return False
        self.is_behind = True  # should this raise, it is tried again
        return self.follow(self._reader, final=final, most=most)

    def follow(
        self, reader: JournalReader, *, final: bool = False, most: int | None = None
    ) -> bool:
        """Go on as far as a reader has read.

        Returns:
            Whether the replay has gone on.

        Raises:
            ConfigError: The job has no prices, or the journal does not tell its configuration.
        """
        run = reader.run()
        found = history_of_run(run, self.folder)
        refuse_free((found.spec,))
        self.history = history = fitted(found)
        if self.replay is None or run.configuration != self._configuration:
            work, self._failures = work_of(history, None, self.seeds)
            begun = 0 if self.replay is None else self.replay.begun
            self.replay = HistoryReplay(work.entrants, self.seeds)
            self.replay.begun = begun
            self._configuration = run.configuration
        replay = self.replay
        before = replay.begun, len(replay)
        self.is_behind = replay.follow(history, final=final, most=most)
        return (replay.begun, len(replay)) != before

    def result(self) -> JobResult | None:
        """What `dsp-gym backtest` would say of the journal so far.

        Returns:
            The job's part of its document; None before the first interval.
        """
        if self.replay is None or self.history is None or not len(self.replay):
            return None
        now = self.replay.begun, len(self.replay)
        if self._found is None or self._found[0] != now:
            found = job_replay(self.history, self.replay)
            found = found.model_copy(update={"failures": self._failures | found.failures})
            terms = replace(terms_of(self.history), trust=self.trust)
            self._found = now, job_result(self.history, found, terms)
        return self._found[1]

    def verdict(self) -> VerdictSummary | None:
        """What the result says of the policy that leads the job's page.

        Returns:
            The verdict in a few values; None before the first interval.
        """
        found = self.result()
        if found is None:
            return None
        best = leading(found, self._leader)
        self._leader = None if best is None else best.policy
        return verdict_summary(found, best)

    def document(self) -> dict[str, Any]:
        """The file beside the journal, for the page and the metrics of the loop.

        Returns:
            JSON values, `dsp-gym/twins/1`.
        """
        assert self.history is not None  # its caller looked
        assert self.replay is not None
        found = self.verdict()
        return {
            **twins_document(self.history, self.replay, self._failures, self.trust),
            "verdict": None if found is None else found.model_dump(mode="json"),
        }

    def _read(self) -> bool:
        """Take in new entries; whether an interval has ended."""
        ended = False
        while True:
            if self._tail.begins_anew:
                self._reader = JournalReader(self.folder)
            for entry in self._tail.entries():
                self._reader.take(entry)
                ended = ended or entry.kind == "outcome"
            if not self._tail.begins_anew:
                return ended


class Following:
    """Replays beside every journal of a folder, those to come included.

    Args:
        folder: of one journal, or of the journals of several jobs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[Path, Follower] = {}

    @property
    def is_behind(self) -> bool:
        """Whether some replays have more to go through at once."""
        return any(one.is_behind for one in self._known.values())

    def look(self) -> Iterator[tuple[str, Follower | DspGymError]]:
        """Go on with every journal, and write beside it how its policies fare.

        A journal in trouble does not keep the others waiting.

        Yields:
            By journal the replay that went on, or what went wrong.
        """
        there = journals_in(self.folder)
        for gone in self._known.keys() - set(there):
            del self._known[gone]
        for folder in there:
            try:
                one = self._known.setdefault(folder, Follower(folder))
                if not one.look():
                    continue
                write_twins(folder, one.document())
                yield folder.name, one
            except DspGymError as error:
                yield folder.name, error


def twins_document(
    history: JobHistory, replay: HistoryReplay, failures: Mapping[str, str], trust: Trust
) -> dict[str, Any]:
    """How the policies of a replay fare, since its start and today.

    Args:
        history: of the job.
        replay: of it.
        failures: watched policies that could not be made.
        trust: bounds of the model's error.

    Returns:
        JSON values, `dsp-gym/twins/1`. A period whose error is too large has no policies, and says
        why.
    """
    at = np.array(replay.slots, np.int64)
    failures = {**failures, **replay.failures}
    runs = {name: run for name, run in replay.runs.items() if name not in replay.failures}
    periods: dict[str, Any] = {}
    if len(at):
        days = history.t_s[at] // DAY_S
        today = int(np.flatnonzero(days == days[-1])[0])
        for name, first in (("start", 0), ("today", today)):
            periods[name] = _period(history, runs, at, first, trust)
    trusted = bool(periods) and not periods["start"]["distrust"]
    last = at[-1] if len(at) else 0
    return {
        "schema": TWINS_SCHEMA,
        "job": history.name,
        "currency": history.spec.prices.currency,
        "seeds": replay.seeds,
        "until_s": float(history.t_s[last] + history.seconds[last]) if len(at) else None,
        "intervals": len(replay),
        "periods": periods,
        "curves": _curves(history, runs, at[-KEPT:]) if trusted else None,
        "failures": failures,
    }


def _period(
    history: JobHistory, runs: Mapping[str, PolicyRun], at: Ints, first: int, trust: Trust
) -> dict[str, Any]:
    """What the policies come to from the interval `first` on."""
    cut = {name: _since(run, first) for name, run in runs.items()}
    base, slots = cut[INCUMBENT], at[first:]
    seen = observed_job(history, base, slots)
    distrust = model_errors(seen, trust)
    seconds = history.seconds[slots]
    total = {name: {q: run.of(q).sum(axis=0) for q in run.values} for name, run in cut.items()}
    own = total[INCUMBENT]
    hours = float(own["seconds"].mean()) / 3600
    month = hours / 730.0
    return {
        "since_s": float(history.t_s[slots[0]]),
        "seconds": float(own["seconds"].mean()),
        "error": {
            "lag_s": [seen.model_lag_s, seen.lag_s],
            "slo_share": [seen.model_late, seen.late],
            "cost_per_h": [seen.model_cost_per_month / 730.0, seen.cost_per_month / 730.0],
        },
        "distrust": list(distrust),
        "observed": {
            "cost": seen.cost_per_month * month,
            "late_s": float(np.nansum(history.late[slots] * seconds)),
            "rescales": float(np.nansum(history.rescales[slots])),
        },
        "policies": {} if distrust else {name: _sums(one, own) for name, one in total.items()},
    }


def _since(run: PolicyRun, first: int) -> PolicyRun:
    values = {name: IntervalRows(run.of(name)[first:]) for name in run.values}
    return PolicyRun(run.extremes, values, run.tasks[first:])


def _sums(own: Mapping[str, Floats], base: Mapping[str, Floats]) -> dict[str, float]:
    """Money, late seconds and rescales of a policy, and the differences from the incumbent."""
    return {
        "cost": float(own["cost"].mean()),
        "late_s": float(own["slo_s"].mean()),
        "rescales": float(own["rescales"].mean()),
        "saved": float((base["cost"] - own["cost"]).mean()),
        "later_s": float((own["slo_s"] - base["slo_s"]).mean()),
    }


def _curves(history: JobHistory, runs: Mapping[str, PolicyRun], at: Ints) -> dict[str, Any]:
    """The newest intervals, observed and by policy."""
    kinds = np.array([v.kind != "source" for v in history.spec.topological_order()])
    observed = {
        "cost_per_h": history.cost_per_h[at],
        "lag_s": history.lag_s[at],
        "late": history.late[at],
        "tasks": history.parallelism[at][:, kinds].sum(axis=1).astype(float),
    }
    return {
        "t_s": history.t_s[at].tolist(),
        "observed": {name: _known(values) for name, values in observed.items()},
        "policies": {name: _curve(run, len(at)) for name, run in runs.items()},
    }


def _curve(run: PolicyRun, newest: int) -> dict[str, list[float | None]]:
    values = {name: run.of(name)[-newest:] for name in run.values}
    seconds = np.maximum(values["seconds"], 1e-9)
    found = {
        "cost_per_h": 3600 * (values["cost"] / seconds).mean(axis=1),
        "lag_s": values["pending_s"].mean(axis=1),
        "late": (values["slo_s"] / seconds).mean(axis=1),
        "tasks": np.array(run.tasks[-newest:]),
    }
    return {name: _known(one) for name, one in found.items()}


def _known(values: Floats) -> list[float | None]:
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values.tolist()]
