"""Decisions for others: a snapshot comes in, the guarded decision of a policy goes out.

Each client's job has its own copy of the policy and of its guardrails, with its own history; the
loop that runs beside is not touched. Histories are bounded in bytes, and each client has its share
of them: the oldest of a client beyond its share makes room for another client's new one, and a
client at its share is refused a new one, while its histories are in use. What is given up leaves
its cool-downs and its time behind, and continues from them.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools
from dsp_gym.config.strict_json import MISFITS, parse_json, read_json
from dsp_gym.control.client_history import RequestHistory
from dsp_gym.control.guarded_policy import GuardedPolicy, Judgement
from dsp_gym.control.serve.batching import (
    MOST_OF_A_BATCH,
    BatchedPolicies,
    SharedGraph,
    SharedGraphs,
)
from dsp_gym.control.serve.client_memory import ClientMemory, KeptClient, Key
from dsp_gym.control.serve.sizes import size_of
from dsp_gym.control.serve.snapshot_decoder import DecodedSnapshot, SnapshotDecoder, decode
from dsp_gym.control.state_store import fits
from dsp_gym.errors import ConfigError, MetricsError, PolicyError, did_you_mean
from dsp_gym.loop.per_job_state import RowBlock
from dsp_gym.loop.snapshot import JobSnapshot, MetricsSnapshot
from dsp_gym.loop.snapshot_stream import ReadRow, snapshot_of_rows
from dsp_gym.loop.watchers import WATCHER_FAILURES
from dsp_gym.loop.wire import Document, decision_to_json
from dsp_gym.policies import capabilities_of

SILENT_S = 86_400.0
"""A history that nobody has asked about for so long may make room for another; no cool-down and no
window of a guardrail is as long."""

AHEAD_S = 60.0
"""How far a snapshot's time may lie ahead of this machine's clock: clocks differ."""

MOST_AT_ONCE = 65_536
"""Bytes of a body that is read beside others: reading a larger one would keep them waiting."""

FIRST_WEIGHED = 16
"""Answers after which a history is weighed again, and up to as many more: weighing takes some ms,
and jobs that ask together should not be weighed together."""

WAIT_S = 0.5
"""Longest wait for the decision before on the same job, s."""

_START_S = 10.0
"""Longest wait for a policy to start on the job of a client, s."""


MOST_JOBS = 4096
"""Histories of one client."""

MOST_NAME = 253
"""Characters of the name of a job, as of any object on Kubernetes."""


class BusyError(Exception):
    """The job's snapshot before is still being decided."""


class FullError(Exception):
    """There is no room for the history of another job."""


@dataclass(slots=True)
class _Job:
    key: Key
    policy: GuardedPolicy
    history: RequestHistory
    reader: SnapshotDecoder
    asked_s: float
    block: RowBlock | None  # what the policy remembers, where it may decide together with others
    is_prompt: bool  # whether the thread that serves may decide, with the plan there is
    due: MetricsSnapshot | None = None  # that its policy has to plan on before it decides again
    graph: SharedGraph | None = None
    bytes: int = 0
    answers: int = 0
    is_gone: bool = False  # it was given up
    is_kept: bool = True  # nothing was decided since that has to outlive it
    weighed_at: int = FIRST_WEIGHED  # answers
    lock: threading.Lock = field(default_factory=threading.Lock)

    def snapshot(self, row: ReadRow) -> MetricsSnapshot:
        """Read what was sent about it, of which nothing but a row is new."""
        known = self.reader.known
        assert known is not None  # otherwise there is no row
        return snapshot_of_rows(known.topology, known.order, [row])

    def plan(self) -> None:
        """Plan what was put off; to be called with the lock."""
        if self.due is not None:
            self.policy.plan(self.due)
            self.due = None

    def plan_alone(self) -> None:
        """Plan in a thread that does nothing else."""
        with self.lock:
            self.plan()


class Question(NamedTuple):
    """A request for a decision."""

    body: bytes  # JSON
    policy: str | None  # None: the acting one
    client: str
    enacts: bool  # whether the answer is enacted; if not the guardrails count nothing


class _Asking(NamedTuple):
    """A job that is asked about, and what was sent."""

    place: int  # of the question
    name: str
    job: _Job
    row: ReadRow


class Decisions:
    """Answers `dsp-gym/snapshot/1` with `dsp-gym/decision/1`.

    Args:
        policies: makes the copy of one policy, by name.
        default: the policy that answers where none is named.
        seed: of policies that draw.
        most_bytes: of all histories together; each client has an equal share.
        most_jobs: histories of one client.
        memory: what outlives a history that is given up, and a restart.
        shared: what the policies share, and no history holds alone.
        later: has plans made in another thread, after the answer. A request that comes before the
            plan makes it.
        now: Unix seconds.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        policies: Mapping[str, Callable[[], GuardedPolicy]],
        default: str,
        seed: int = 0,
        *,
        most_bytes: int = 64 * 2**20,
        most_jobs: int = MOST_JOBS,
        memory: ClientMemory | None = None,
        shared: tuple[object, ...] = (),
        later: Callable[[Callable[[], None]], object] = lambda plan: None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policies, self._default, self._seed = dict(policies), default, seed
        self._most_bytes, self._shared, self._later = most_bytes, shared, later
        self._now, self._clock, self._most_jobs = now, clock, most_jobs
        self._memory = memory or ClientMemory(None, most_bytes // 4)
        self._jobs: OrderedDict[Key, _Job] = OrderedDict()  # the one asked for last comes last
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()  # by client
        self._jobs_of: Counter[str] = Counter()
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._graphs, self._tables = SharedGraphs(), BatchedPolicies(self._policies, seed)

    @property
    def policies(self) -> list[str]:
        """Names that may be asked for."""
        return sorted(self._policies)

    @property
    def held_bytes(self) -> int:
        """Bytes of all histories together."""
        return self._bytes

    def answer(self, question: Question) -> Document:
        """Decide on one snapshot.

        Returns:
            The guarded decision as a `dsp-gym/decision/1` document.

        Raises:
            DspGymError: The body is no snapshot, contradicts the job's history, or the policy does
                not fit the job.
            BusyError: The snapshot before is still being decided.
            FullError: There is no room for the history of another job.
        """
        name = question.policy or self._default
        if name not in self._policies:
            raise ConfigError(
                f"there is no policy '{name}' here",
                key="policy",
                remedy=did_you_mean(name, self._policies),
            )
        found = decode(question.body)
        document = read_json(question.body) if found is None else None
        if found is not None:
            given = found.job
        else:
            given = document.get("job") if isinstance(document, dict) else None
        asked = self._known(Key(question.client, name, given)) if isinstance(given, str) else None
        if asked is None:
            document = document or read_json(question.body)
            asked = self._begun(document, found, name, question.client)
        if not asked.lock.acquire(timeout=WAIT_S):
            raise BusyError(
                f"a decision on job '{given}' is under way for {WAIT_S:g} s; send its snapshots "
                "one after the other"
            )
        try:
            asked.plan()
            row = None if found is None else asked.reader.row(found)
            if row is not None:
                snapshot = asked.snapshot(row)
            else:
                asked.graph = None  # what was read may be another graph, which the history refuses
                snapshot = asked.reader.read(document or read_json(question.body), found)
            self._refuse_future(snapshot)
            asked.history.take(snapshot)
            if asked.graph is None:
                self._place(asked)
            return self._decided(asked, snapshot, enacts=question.enacts)
        finally:
            asked.lock.release()

    def answer_batch(self, questions: Sequence[Question]) -> list[Document | None]:
        """Decide on several snapshots, as `answer` does; never waits.

        Returns:
            A `dsp-gym/decision/1` document for each; None for one that `answer` has to look at.
        """
        answers: list[Document | None] = [None] * len(questions)
        groups: dict[tuple[str, int, bool], list[_Asking]] = {}
        taken: list[_Job] = []
        left: set[Key | str] = set()  # jobs, and clients, whose later questions have to wait
        try:
            for place, question in enumerate(questions):
                asking = self._ready(place, question, left)
                if asking is not None:
                    taken.append(asking.job)
                    shares = asking.job if asking.job.block is None else asking.job.graph
                    key = asking.name, id(shares), question.enacts
                    groups.setdefault(key, []).append(asking)
            for (_, _, enacts), asked in groups.items():
                for first in range(0, len(asked), MOST_OF_A_BATCH):
                    self._decide(asked[first : first + MOST_OF_A_BATCH], answers, enacts=enacts)
        finally:
            for job in taken:
                job.lock.release()
        return answers

    def planned(self, question: Question) -> bool:
        """See to the plan that a question waits for; may take as long as planning does.

        Returns:
            Whether there was one; `answer_batch` can then answer.
        """
        found = decode(question.body) if len(question.body) <= MOST_AT_ONCE else None
        name = question.policy or self._default
        job = None if found is None else self._known(Key(question.client, name, found.job))
        if job is None or job.due is None or not job.is_prompt:
            return False
        job.plan_alone()
        return True

    def save(self, *, everything: bool = False) -> None:
        """Put on disk what has to outlive a restart; to be called now and then.

        Args:
            everything: also of jobs about which nothing was decided that changes them.
        """
        with self._lock:
            jobs = list(self._jobs.items())
        for key, job in jobs:
            if (everything or not job.is_kept) and job.lock.acquire(timeout=WAIT_S):
                try:
                    self._keep(key, job)
                finally:
                    job.lock.release()
        self._memory.write()

    def close(self) -> None:
        """Forget every job; the next process continues their cool-downs."""
        self.save(everything=True)
        with self._lock:
            self._jobs.clear()
            self._bytes_of.clear()
            self._jobs_of.clear()
            self._bytes = 0

    def _keep(self, key: Key, job: _Job) -> None:
        """Remember what must not be lost of a history; to be called with its lock."""
        job.is_kept = True
        if not math.isfinite(job.history.t_s):
            return  # it has not decided yet
        try:
            remembered = job.policy.remembered()
            guardrails = None if remembered is None else json.dumps(remembered)
        except Exception as error:  # of somebody's own guardrail
            WATCHER_FAILURES.add("clients", error)
            guardrails = None
        self._memory.keep(key, KeptClient(job.history.t_s, job.history.vertices, guardrails))

    def _ready(self, place: int, question: Question, left: set[Key | str]) -> _Asking | None:
        """Lock the job of a question that can be answered at once; None: `answer` has to see it."""
        found = decode(question.body) if len(question.body) <= MOST_AT_ONCE else None
        if found is None or question.client in left:
            left.add(question.client)
            return None
        key = Key(question.client, question.policy or self._default, found.job)
        job = self._known(key)
        if job is None or key in left or not job.is_prompt or not job.lock.acquire(blocking=False):
            left.add(key)
            return None
        waits = job.due is not None or not job.policy.has_plan
        row = job.reader.row(found) if job.graph and not waits else None
        if row is not None and job.history.t_s < row.t_s <= self._now() + AHEAD_S:
            return _Asking(place, key.policy, job, row)
        job.lock.release()
        left.add(key)
        return None

    def _decide(
        self, asked: Sequence[_Asking], answers: list[Document | None], *, enacts: bool
    ) -> None:
        """Answer questions about jobs of one graph."""
        graph, blocks = asked[0].job.graph, [one.job.block for one in asked if one.job.block]
        assert graph is not None  # of a job that is ready
        judged, moves = None, np.zeros(len(asked), bool)
        if len(asked) > 1:
            snapshot = graph.snapshot([one.row for one in asked])
            judged = self._tables.decide(asked[0].name, graph, blocks, snapshot, enacts=enacts)
            moves = moves if judged is None else _moves(judged, snapshot)
        for number, one in enumerate(asked):
            one.job.history.t_s = one.row.t_s
            if judged is None:
                alone = one.job.snapshot(one.row)
                answers[one.place] = self._decided(one.job, alone, enacts=enacts)
            else:
                answer = _document(judged, snapshot.job(number), one.job.key.job)
                answers[one.place] = answer
                one.job.is_kept &= not (enacts and bool(moves[number]))
                self._count(one.job)

    def _decided(self, asked: _Job, snapshot: MetricsSnapshot, *, enacts: bool) -> Document:
        judged = asked.policy.decide(snapshot)
        answer = _document(judged, snapshot.job(0), asked.key.job)
        settled = asked.policy.settle(snapshot, judged, enacted=enacts)
        asked.is_kept &= not (enacts and bool(_moves(judged, snapshot)[0]))
        failure = judged.failure or settled
        if failure is not None:
            answer["reason"] = failure.reason
        self._count(asked)
        if asked.policy.is_due:
            asked.due = snapshot
            self._later(asked.plan_alone)
        return answer

    def _count(self, asked: _Job) -> None:
        """Count an answer; to be called with the job's lock."""
        if asked.is_gone:
            self._keep(asked.key, asked)
        asked.answers += 1
        if asked.answers >= asked.weighed_at:  # a history grows less and less
            asked.weighed_at *= 4
            self._weigh(asked)

    def _place(self, job: _Job) -> None:
        """Find the graph of a job whose snapshot was taken in."""
        known, fixed = job.reader.known, job.reader.fixed
        job.graph = None
        if known is not None and fixed is not None:
            job.graph = self._graphs.of(fixed, known)

    def _refuse_future(self, snapshot: MetricsSnapshot) -> None:
        ahead_s = float(snapshot.t_s[0]) - self._now()
        if ahead_s > AHEAD_S:
            raise MetricsError(
                f"t_s {float(snapshot.t_s[0]):.0f} of job '{snapshot.topology.spec(0).job}' lies "
                f"{ahead_s:.0f} s ahead of this machine's clock",
                remedy="Send Unix seconds, and see to it that both clocks are right.",
            )

    def _known(self, key: Key) -> _Job | None:
        with self._lock:
            found = self._jobs.get(key)
            if found is not None:
                found.asked_s = self._clock()
                self._jobs.move_to_end(key)
            return found

    def _begun(
        self, document: Document, found: DecodedSnapshot | None, policy: str, client: str
    ) -> _Job:
        """Begin a history; nothing is remembered of a snapshot that is refused."""
        reader = SnapshotDecoder("request")
        snapshot = reader.read(document, found)
        if len(snapshot.topology.spec(0).job) > MOST_NAME:
            raise MetricsError(
                f"the name of the job has more than {MOST_NAME} characters",
                key="job",
                remedy="Give it a shorter one.",
            )
        key = Key(client, policy, snapshot.topology.spec(0).job)
        self._refuse_future(snapshot)
        with self._making:
            found = self._known(key)
            if found is not None:
                return found
            kept = self._memory.find(key, snapshot.job(0).vertices)
            t_s = float(snapshot.t_s[0])
            if kept is None and t_s <= self._memory.gone_s(client):
                raise MetricsError(
                    f"t_s {t_s:.0f} of job '{key.job}' is older than histories that were given up",
                    remedy="Send a snapshot of today.",
                )
            self._make_room(key)
            copy = self._policies[policy]()
            copy.reset(snapshot.topology, np.array([self._seed], np.int64), _START_S)
            if kept is not None:
                _continue(copy, kept)
            history = RequestHistory(snapshot, "Send the snapshots of a job in order, each once.")
            if kept is not None:
                history.t_s = kept.t_s
            memories = copy.memories()
            block = None if memories is None else RowBlock(memories, 1)
            made = _Job(key, copy, history, reader, self._clock(), block, copy.is_prompt)
            self._place(made)
            with self._lock:
                made.weighed_at += len(self._jobs) % FIRST_WEIGHED
                self._jobs[key] = made
                self._jobs_of[client] += 1
            self._weigh(made)
            return made

    def _make_room(self, key: Key) -> None:
        """Give up histories, so that there is room for one more of a client.

        First go those that nobody asks about, then the oldest of the client with most of them, but
        only for one that has less than its share.
        """
        with self._lock:
            client, jobs_of, bytes_of = key.client, self._jobs_of, self._bytes_of
            own = [job.bytes for one, job in self._jobs.items() if one.client == client]
            needed = max(own, default=self._bytes // max(1, len(self._jobs)))
            while self._jobs:
                is_full = self._bytes + needed > self._most_bytes
                if not is_full and jobs_of[client] < self._most_jobs:
                    return
                oldest = next(k for k in self._jobs if is_full or k.client == client)
                if self._clock() - self._jobs[oldest].asked_s < SILENT_S:
                    clients = 1 + sum(1 for one, n in jobs_of.items() if n and one != client)
                    share = self._most_bytes / clients
                    if jobs_of[client] >= self._most_jobs or bytes_of[client] + needed > share:
                        raise FullError(self._full(key, share))
                    most = max(jobs_of, key=lambda one: (bytes_of[one], one != client))
                    oldest = next(k for k in self._jobs if k.client == most)
                self._give_up(oldest)

    def _full(self, key: Key, share: float) -> str:
        """Say why there is no room."""
        jobs, taken = self._jobs_of[key.client], self._bytes_of[key.client]
        return (
            f"no room for job '{key.job}': the histories of {jobs} jobs of this client take "
            f"{taken / 2**20:.0f} MiB, {self._most_jobs} jobs and {share / 2**20:.0f} MiB are the "
            "most, and all were asked about within a day. Raise serve.history_mib."
        )

    def _give_up(self, key: Key) -> None:
        """Forget a history but for its cool-downs; to be called with the lock."""
        job = self._jobs.pop(key)
        self._bytes -= job.bytes
        self._bytes_of[key.client] -= job.bytes
        self._jobs_of[key.client] -= 1
        job.is_gone = True
        if job.lock.acquire(blocking=False):  # whoever decides on it now needs our lock
            try:
                self._keep(key, job)
            finally:
                job.lock.release()

    def _weigh(self, job: _Job) -> None:
        shared = capabilities_of(job.policy.policy).shared
        others = () if shared is None else shared()
        taken = size_of((job.policy, job.reader, job.history), (*self._shared, *others))
        with self._lock:
            if job.is_gone:
                return
            self._bytes += taken - job.bytes
            self._bytes_of[job.key.client] += taken - job.bytes
            job.bytes = taken


def _moves(judged: Judgement, snapshot: MetricsSnapshot) -> Bools:
    """Which jobs of a snapshot an answer changes, (J,)."""
    guarded = judged.guarded
    tasks = guarded.parallelism != snapshot.parallelism
    return np.asarray((tasks | (guarded.memory_level != snapshot.memory_level)).any(axis=1))


def _continue(policy: GuardedPolicy, kept: KeptClient) -> None:
    """Continue the guardrails' cool-downs; those of another configuration start over."""
    if kept.guardrails is None:
        return
    fresh, state = policy.remembered(), parse_json(kept.guardrails)
    if fresh is None or not fits(fresh, state):
        return
    try:
        policy.recall(state)
    except PolicyError:
        return  # a guardrail that hangs; the next decision says so
    except MISFITS:
        policy.recall(fresh)


def _document(judged: Judgement, job: JobSnapshot, name: str) -> Document:
    """Write what is answered about one job of a snapshot."""
    answer = decision_to_json(judged.guarded, job, name)
    if judged.forecast is not None:
        answer["forecast"] = judged.forecast.document(job.index)
    return answer
