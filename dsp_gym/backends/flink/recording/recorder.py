"""Does the runs of a plan on a real job, one by one.

Every run is submitted again, from the populated savepoint or without state, watched, and stopped.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.recording.plan import PlannedRun, RecordConfig, planned, populated
from dsp_gym.backends.flink.rescale.preflight import local_folder
from dsp_gym.backends.flink.rescale.savepoints import Savepoint, Stop
from dsp_gym.backends.flink.rescale.worker import as_words
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.rest_samples import RestSamples
from dsp_gym.backends.flink.source import SampleSource
from dsp_gym.backends.flink.submission import Submission, load_arguments
from dsp_gym.errors import FlinkError
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import SAMPLE_S, Samples
from dsp_gym.records.manifest import Event, EventKind, RecordedLoad
from dsp_gym.records.writer import EndedRun, RecordingWriter

ATTEMPTS = 2
"""A run that fails is tried once more: slots of a predecessor may not have been free yet."""

STOP_S = 4.0
"""What stopping a run takes, for the time left: 1 to 13 s were seen."""

_STOP_TIMEOUT_S = 120.0
_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a recording is."""

    run: str
    what: str
    runs_done: int
    runs: int
    done_s: float
    left_s: float


Tell = Callable[[Progress], None]


def run_seconds(config: RecordConfig) -> float:
    """Estimate how long one run takes.

    Returns:
        Seconds.
    """
    return config.lead_s + config.warm_up_s + config.seconds + STOP_S


class Recorder:
    """Does the runs that a recording lacks.

    Args:
        config: the plan.
        cluster: where.
        writer: the recording.
        tell: told how far it is.
        clock: Unix seconds.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        config: RecordConfig,
        cluster: LocalCluster,
        writer: RecordingWriter,
        tell: Tell = lambda progress: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config, self.cluster, self.writer = config, cluster, writer
        self.spec = writer.spec
        self.rest = cluster.rest
        self.job_name = f"record-{self.spec.job}-{str(writer.manifest.plan_sha256)[:8]}"
        self._tell, self.clock, self.sleep = tell, clock, sleep
        started = writer.manifest.started_unix_s
        self.zero_s = clock() if started is None else started
        self._plan = planned(config, self.spec)
        self._began_s = clock()
        self._at = ""

    def run(self) -> None:
        """Do them all."""
        self._clear_cluster()
        missing = [run for run in self._plan if run.name not in self.writer.names()]
        savepoint = self._populated_savepoint() if missing else None
        for run in missing:
            for attempt in range(1, ATTEMPTS + 1):
                if self._attempt(run, savepoint, attempt):
                    break
                self.rest.overview()  # a cluster that is gone fails every run: say so at once
        self.say("", "done")

    def _clear_cluster(self) -> None:
        """End what an earlier, killed recording of this plan left; refuse other jobs."""
        for job in self.rest.jobs():
            if job.state in ENDED:
                continue
            if job.name != self.job_name:
                raise FlinkError(
                    f"{self.rest.url}: job {job.name!r} runs on this cluster, and would share its "
                    "cores and memory with the recorded job",
                    remedy=f"End it (dsp-gym flink down --job {shlex.quote(job.name)}), or record "
                    "on another cluster: --home FOLDER",
                )
            self.end(job.id)

    def _attempt(self, run: PlannedRun, savepoint: str | None, attempt: int) -> bool:
        """One attempt at a run; whether it is in the recording now, complete."""
        watched = _Watched(self, run.name, run.configuration, run.load, run.seed)
        cause: str | None = None
        samples = Samples.of(())
        try:
            with self._nothing_left(watched):
                watched.submit(savepoint)
                watched.wait(self.config.warm_up_s + self.config.seconds)
                samples = watched.samples()
                watched.stop(keep=False)
        except FlinkError as error:
            cause = str(error)
            watched.note("failure", {"cause": cause})
        # A failed attempt is kept under another name: later ones do not replace it.
        tried = sum(r.name.startswith(f"{run.name}.failed-") for r in self.writer.manifest.runs)
        name = run.name if cause is None else f"{run.name}.failed-{tried + 1}"
        ended = EndedRun(
            name=name,
            configuration=run.configuration,
            load=run.load,
            t_begin_s=watched.t_begin_s,
            t_load_s=watched.t_load_s,
            t_running_s=watched.t_running_s,
            t_end_s=watched.t_end_s or self.now_s(),
            repeat=run.repeat,
            seed=run.seed,
            attempt=attempt,
            cause=cause,
        )
        events = [
            event if cause is None else event.model_copy(update={"run": name})
            for event in watched.events
        ]
        self.writer.add(ended, samples, events)
        return cause is None

    def _populated_savepoint(self) -> str | None:
        """The savepoint every run starts from: the recording's, if it is still there."""
        part, configuration = self.config.populate, populated(self.config, self.spec)
        if part is None or configuration is None:
            return None
        known = self.writer.manifest.populated
        if known is not None:
            kept = local_folder(known["location"], self.rest.url)
            if kept is not None and (kept / "_metadata").exists():
                return str(known["location"])
        load = RecordedLoad(name="populate", steps=((0.0, part.rate_per_s),), saturated=True)
        watched = _Watched(self, "", configuration, load, self.config.seed)
        with self._nothing_left(watched):
            watched.submit(None)
            watched.wait(part.seconds)
            written = watched.stop(keep=True)
        assert written is not None  # a stop that keeps its savepoint has one
        self.writer.note(
            watched.events,
            {"location": written.location, "bytes": written.bytes, "seconds": written.seconds},
        )
        return written.location

    @contextlib.contextmanager
    def _nothing_left(self, watched: _Watched) -> Iterator[None]:
        """Whatever happens inside, no job of ours runs on afterwards."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(FlinkError):
                for job in self.rest.jobs():
                    if job.name == self.job_name and job.state not in ENDED:
                        self.end(job.id)
            watched.t_end_s = self.now_s()
            raise

    def end(self, job_id: str) -> None:
        """Cancel a job and wait until it has ended."""
        self.rest.cancel(job_id)
        self.rest.wait_for(job_id, ENDED, 60.0)

    def now_s(self) -> float:
        """Seconds since the recording began.

        Returns:
            Seconds, the recording's own time.
        """
        return self.clock() - self.zero_s

    def say(self, run: str, what: str) -> None:
        """Time left: what is missing at the planned length, the run at work by its share."""
        each = run_seconds(self.config)
        names = self.writer.names()
        done = sum(planned.name in names for planned in self._plan)
        if run != self._at:
            self._at, self._began_s = run, self.clock()
        spent = self.clock() - self._began_s
        left = each * (len(self._plan) - done)
        if run == "" and what != "done" and self.config.populate is not None:
            left += max(0.0, self.config.lead_s + self.config.populate.seconds + STOP_S - spent)
        elif run:
            left -= min(spent, each)
        done_s = each * len(self._plan) - left
        self._tell(Progress(run, what, done, len(self._plan), max(0.0, done_s), max(0.0, left)))


class _Watched:
    """One job from its submission to its end, with its events."""

    def __init__(
        self,
        recorder: Recorder,
        run: str,
        configuration: Configuration,
        load: RecordedLoad,
        seed: int,
    ) -> None:
        self._recorder, self._run = recorder, run
        self._configuration, self._load, self._seed = configuration, load, seed
        self.job = FlinkJob(recorder.rest, recorder.job_name, recorder.spec)
        self.source = self._source()
        self.events: list[Event] = []
        self.t_begin_s = recorder.now_s()
        self.t_load_s = self.t_begin_s + recorder.config.lead_s
        self.t_running_s: float | None = None
        self.t_end_s: float | None = None
        self._job_id = ""

    def note(self, kind: EventKind, body: dict[str, object]) -> None:
        """Keep an event of now."""
        at_s = self._recorder.now_s() if self.t_end_s is None else self.t_end_s
        self.events.append(Event(t_s=at_s, run=self._run, kind=kind, body=body))

    def submit(self, savepoint: str | None) -> None:
        """Submit the job and wait until all of it runs."""
        recorder = self._recorder
        recorder.say(self._run, "starting")
        arguments = {**self._load_arguments(), "seed": str(self._seed)}
        submission = Submission.of_spec(recorder.spec, arguments, recorder.job_name)
        body = as_words(self._configuration)
        self.note("submitted", {**body, "savepoint": savepoint})
        self._job_id = submission.submit(recorder.rest, self._configuration, savepoint)
        observed = self.job.observe(recorder.clock())
        self.t_running_s = observed.running_since_s - recorder.zero_s
        self.note("running", {**body, "job_id": self._job_id})

    def wait(self, seconds: float) -> None:
        """Let it run that long after it ran and its load began; poll as samples are taken."""
        recorder = self._recorder
        assert self.t_running_s is not None  # set when it ran
        until_s = max(self.t_running_s, self.t_load_s) + seconds
        while (left_s := until_s - recorder.now_s()) > 0:
            recorder.say(self._run, "running")
            recorder.sleep(min(float(SAMPLE_S), left_s))
            self.source.poll()
            self._check()

    def samples(self) -> Samples:
        """The samples since it ran, on the recording's clock."""
        recorder = self._recorder
        assert self.t_running_s is not None  # set when it ran
        found = self.source.samples(self.t_running_s + recorder.zero_s, recorder.clock())
        if not np.any(found.vertex != ""):
            raise FlinkError(
                "no sample of the job was found",
                remedy="Look whether Prometheus scrapes the TaskManager: dsp-gym flink status",
            )
        return replace(found, t_s=found.t_s - recorder.zero_s)

    def stop(self, *, keep: bool) -> Savepoint | None:
        """End it as the plan says; with `keep` with a savepoint that stays."""
        recorder = self._recorder
        recorder.say(self._run, "stopping")
        self.t_end_s = recorder.now_s()
        if recorder.config.stop == "cancel" and not keep:
            recorder.end(self._job_id)
            self.note("stopped", {"how": "cancel"})
            return None
        folder = recorder.cluster.savepoints
        stop = Stop(recorder.rest, self._job_id, str(folder), folder)
        deadline_s = recorder.clock() + _STOP_TIMEOUT_S
        while (written := stop.look()) is None:
            if recorder.clock() > deadline_s:
                raise FlinkError(f"no savepoint was complete within {_STOP_TIMEOUT_S:g} s")
            recorder.sleep(_POLL_S)
        recorder.rest.wait_for(self._job_id, ENDED, 60.0)
        body = {"seconds": written.seconds, "bytes": written.bytes}
        self.note("savepoint", {**body, "location": written.location if keep else None})
        self.note("stopped", {"how": "savepoint"})
        left = None if keep else local_folder(written.location, recorder.rest.url)
        if left is not None:
            shutil.rmtree(left, ignore_errors=True)
        return written

    def _check(self) -> None:
        """A job that failed, even if Flink has restarted it, shows nothing of its configuration."""
        rest = self._recorder.rest
        state = str(rest.job(self._job_id)["state"])
        cause = rest.exceptions(self._job_id)
        if state != "RUNNING" or cause is not None:
            raise FlinkError(f"the job failed and is {state}: {cause or 'no cause is known'}")

    def _load_arguments(self) -> dict[str, str]:
        epoch_ms = int((self.t_load_s + self._recorder.zero_s) * 1000)
        steps = self._load.steps
        if len(steps) == 1:
            return {"rate": f"{steps[0][1]:.10g}", "epoch-ms": str(epoch_ms)}
        rates = [self._load.rate_at(float(second)) for second in range(int(steps[-1][0]) + 1)]
        return load_arguments(rates, self._recorder.writer.folder / "loads", epoch_ms)

    def _source(self) -> SampleSource:
        recorder = self._recorder
        if recorder.config.metrics == "rest":
            keep_s = 2.0 * run_seconds(recorder.config)
            return RestSamples(recorder.rest, self.job, recorder.spec, keep_s, recorder.clock)
        url = recorder.cluster.prometheus_url
        if url is None:
            raise FlinkError(
                "the cluster that runs has no Prometheus",
                remedy="Start one with: dsp-gym flink up --prometheus, or set metrics: rest",
            )
        from dsp_gym.backends.flink.prometheus import PrometheusSamples

        return PrometheusSamples(url, self.job, recorder.spec)
