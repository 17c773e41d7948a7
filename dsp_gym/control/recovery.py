"""What a run does first: a rescale that an earlier process did not end is finished, or named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.backends.base import Clock, OnEvent
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import ACTING, Mode
from dsp_gym.control.roll_back import RollBack
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.records.rescales import Unfinished, unfinished

if TYPE_CHECKING:
    from dsp_gym.backends.flink.connection import Place


@dataclass(frozen=True, slots=True)
class Recovery:
    """The rescale that the journal of a run leaves open.

    Args:
        config: the run.
        spec: its job.
        mode: how far the run may go; only one that acts finishes anything.
        step: receives every step, for journal and terminal.
        clock: its `stop` ends the attempts to bring a job back, once an alarm was raised.
    """

    config: RunConfig
    spec: JobSpec
    mode: Mode
    step: OnEvent
    clock: Clock

    def before_connecting(self, folder: Path) -> Unfinished | None:
        """See that the job runs, where it was left between two configurations.

        Only a stop-with-savepoint leaves it so; elsewhere the operator or the scheduler finishes
        what was asked.

        Args:
            folder: of the journal, which nobody else writes.

        Returns:
            A rescale that has still no end; None without one.

        Raises:
            FlinkError: The job does not run; the remedy names its state and the commands.
        """
        left = unfinished(folder)
        if left is None or left.stopping is None or self.config.where.kubernetes is not None:
            return left
        from dsp_gym.backends.flink.connection import reach

        try:
            place = reach(self.config.where)
        except FlinkError as error:
            raise self._told(error, left, str(self.config.where.rest_url or "URL")) from error
        can_act = self.mode in ACTING and place.config.actuator == "resubmit"
        if not (can_act and left.can_be_taken_up):
            self._name(place, left)
            return left
        self._resume(place, left)
        left = unfinished(folder)
        if left is not None:
            self._name(place, left)
        return left

    def after_connecting(
        self, left: Unfinished | None, seen: MetricsSnapshot, written: str | None = None
    ) -> None:
        """Tell what became of a rescale that the cluster finishes by itself.

        Args:
            left: the rescale; None: there is none.
            seen: the job now.
            written: id of the decision that was written to the job last, where that is known.
        """
        if left is None or (left.stopping is not None and self.mode not in ACTING):
            return
        runs = dict(Configuration.of_row(seen, seen.topology).parallelism)
        outcome = "another configuration runs"
        if runs == left.asked["to"]["parallelism"]:
            outcome = "finished"
        elif written is not None and written == left.asked.get("id"):
            outcome = "written, and not carried out yet"
        elif runs == left.asked["from"]["parallelism"]:
            outcome = "not begun, or undone"
        body: dict[str, object] = {"outcome": outcome, "asked_s": left.t_s, "runs": runs}
        self.step("recovered", {**body, "reason": f"{_since(left)}: {outcome}"})

    def recall(self, begun: Unfinished, roll_back: RollBack, topology: Topology) -> None:
        """Have a change watched whose process ended before it could keep that it was made.

        Args:
            begun: the rescale as it was before this start.
            roll_back: watches the last change.
            topology: the job.
        """
        before, wanted = begun.asked["from"], begun.asked["to"]
        names = set(topology.names(0))
        if names == before["parallelism"].keys() == wanted["parallelism"].keys():
            roll_back.recall(begun.t_s, Configuration(**before), topology)

    def _resume(self, place: Place, left: Unfinished) -> None:
        from dsp_gym.backends.flink.rescale.resumed import ResumedRescale

        with ResumedRescale(
            place.rest,
            self.config.job_name or self.spec.job,
            self.spec,
            left,
            timeout_s=place.config.rescale_timeout_s,
            on_event=self.step,
            own=place.config.program,
        ) as actuator:
            actuator.resume()
            while not actuator.wait(1.0) and not self.clock.stop.is_set():
                pass

    def _name(self, place: Place, left: Unfinished) -> None:
        """Raise where the job does not run; otherwise somebody has seen to it."""
        try:
            place.rest.find_job(self.config.job_name or self.spec.job)
        except FlinkError as error:
            raise self._told(error, left, place.rest.url) from error

    def _told(self, error: FlinkError, left: Unfinished, url: str) -> FlinkError:
        from dsp_gym.backends.flink.rescale.resumed import advice

        name = self.config.job_name or self.spec.job
        state, by_hand = advice(url, name, self.spec, left, self.config.where.program)
        again = "Run with --apply to have it finished, or do it by hand: "
        if not left.can_be_taken_up:
            again = "By hand, with the arguments of its load: "
        elif self.mode in ACTING:
            again = "Run again to have it finished, or do it by hand: "
        return FlinkError(
            f"{error.message}; {_since(left)} was not finished: {state}",
            reason=error.reason,
            remedy=again + by_hand,
        )


def _since(left: Unfinished) -> str:
    when = datetime.fromtimestamp(left.t_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"the rescale asked for at {when}"
