"""Decisions about jobs with the same graph in one call.

A policy and its guardrails decide about many jobs in hardly more time than about one. Each job
keeps its own policy; its rows are copied into a policy for as many jobs as ask together, and back
after the decision, so that an answer does not depend on who else asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import numpy as np

from dsp_gym.control.guarded_policy import GuardedPolicy, Judgement
from dsp_gym.control.serve.snapshot_decoder import Fixed
from dsp_gym.loop.per_job_state import RowBlock
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.snapshot_stream import Known, ReadRow, snapshot_of_rows
from dsp_gym.loop.topology import Topology

MOST_OF_A_BATCH = 16
"""Most jobs that are decided about in one call; more would gain little."""

_MOST_TABLES = 64
"""Policies for several jobs that are kept."""


class SharedGraph:
    """What jobs share that differ in their names alone.

    Args:
        known: of one of them.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._topologies: dict[int, Topology] = {}

    def topology(self, jobs: int) -> Topology:
        """Describe that many jobs of this graph.

        Args:
            jobs: 1 or more.

        Returns:
            J rows of one job file.
        """
        found = self._topologies.get(jobs)
        if found is None:
            one = self._known.topology
            found = self._topologies[jobs] = one.take(np.zeros(jobs, np.int64))
        return found

    def snapshot(self, rows: Sequence[ReadRow]) -> MetricsSnapshot:
        """Put together what was sent about some jobs of this graph.

        Args:
            rows: one for each job.

        Returns:
            A snapshot of as many rows.
        """
        return snapshot_of_rows(self.topology(len(rows)), self._known.order, rows)


class SharedGraphs:
    """Graphs by what is fixed about them, as long as a job of theirs is known."""

    def __init__(self) -> None:
        self._graphs: WeakValueDictionary[Fixed, SharedGraph] = WeakValueDictionary()

    def of(self, fixed: Fixed, known: Known) -> SharedGraph:
        """Find the graph of a job.

        Args:
            fixed: all that is fixed about the job but its name.
            known: the same, compiled.

        Returns:
            The same for all jobs that have the same graph.
        """
        found = self._graphs.get(fixed)
        if found is None:
            found = self._graphs[fixed] = SharedGraph(known)
        return found


class _Table:
    """A policy that decides about several jobs at once."""

    def __init__(self, policy: GuardedPolicy, graph: SharedGraph, jobs: int, seed: int) -> None:
        policy.reset(graph.topology(jobs), np.full(jobs, seed, np.int64))
        memories = policy.memories()
        assert memories is not None  # those of the jobs are known
        self.graph, self.policy = graph, policy
        self.block = RowBlock(memories, jobs)


class BatchedPolicies:
    """Policies for several jobs, made as they are needed.

    Args:
        policies: makes the copy of one policy, by name.
        seed: of policies that draw.
    """

    def __init__(self, policies: dict[str, Callable[[], GuardedPolicy]], seed: int) -> None:
        self._policies, self._seed = policies, seed
        self._tables: OrderedDict[tuple[str, int, int], _Table] = OrderedDict()

    def decide(
        self,
        policy: str,
        graph: SharedGraph,
        blocks: Sequence[RowBlock],
        snapshot: MetricsSnapshot,
        *,
        enacts: bool,
    ) -> Judgement | None:
        """Decide about jobs of one graph, two or more.

        Args:
            policy: its name.
            graph: of the jobs.
            blocks: what the jobs' policies remember; current afterwards.
            snapshot: of the jobs.
            enacts: whether the decisions are enacted.

        Returns:
            What one policy would have answered about each; None where something went wrong, and
            nothing has changed.
        """
        table = self._table(policy, graph, len(blocks))
        table.block.load(blocks)
        judged = table.policy.decide(snapshot)
        if judged.failure or table.policy.settle(snapshot, judged, enacted=enacts):
            return None
        table.block.store(blocks)
        return judged

    def _table(self, policy: str, graph: SharedGraph, jobs: int) -> _Table:
        key = policy, id(graph), jobs  # a table keeps its graph
        found = self._tables.get(key)
        if found is None:
            if len(self._tables) >= _MOST_TABLES:
                self._tables.popitem(last=False)
            found = self._tables[key] = _Table(self._policies[policy](), graph, jobs, self._seed)
        self._tables.move_to_end(key)
        return found
