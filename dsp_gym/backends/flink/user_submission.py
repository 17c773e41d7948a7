"""The submission of a user's own program: the job is submitted as it was, but for parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from dsp_gym.backends.flink.answers import JobAnswer, vertices_of
from dsp_gym.backends.flink.program import UserProgram
from dsp_gym.backends.flink.rest import FlinkRest, JobPlan, until_timeout
from dsp_gym.backends.flink.submission import (
    PATIENCE_S,
    Submission,
    configuration_of,
    levels_of_slots,
    slot_sharing_of,
    upload_by_hand,
)
from dsp_gym.errors import FlinkError, did_you_mean
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration

_SAY = (
    "Say in where.program what the job was submitted with: entry_class, arguments, parallelism, "
    "settings."
)


@dataclass(frozen=True, slots=True)
class UserSubmission(Submission):
    """A job of a user's own jar.

    `is_adaptive` says whether Flink takes the parallelism of each vertex beside the submission.
    """

    own: UserProgram = field(kw_only=True)
    vertex_ids: Mapping[str, str] = field(kw_only=True)  # by vertex of the job file
    others: Mapping[str, int] = field(kw_only=True)  # tasks of further vertices, by id
    is_adaptive: bool = field(kw_only=True)

    @classmethod
    def of_job(cls, rest: FlinkRest, job: JobAnswer, spec: JobSpec, own: UserProgram) -> Self:
        """Read what stays the same from a running job.

        Args:
            rest: the cluster.
            job: as Flink shows it.
            spec: its job file.
            own: the program.

        Returns:
            The submission.
        """
        ids = {name: str(one["id"]) for name, one in vertices_of(job, spec).items()}
        others = {
            str(one["id"]): int(one["parallelism"])
            for one in job["vertices"]
            if str(one["id"]) not in ids.values()
        }
        return cls(
            spec,
            str(job["name"]),
            {},
            slot_sharing_of(spec),
            own=own,
            vertex_ids=ids,
            others=others,
            is_adaptive=rest.scheduler() == "adaptive",
        )

    @property
    def moves_memory(self) -> bool:
        """Whether it asks for the managed memory of each vertex: never."""
        return False

    @property
    def patience_s(self) -> float | None:
        """The adaptive scheduler starts it first, and waits before it changes what runs (30 s)."""
        return None if self.is_adaptive else PATIENCE_S

    def run(self, configuration: Configuration) -> dict[str, object]:
        """The submission as Flink takes it.

        Returns:
            The body of `POST /jars/:jarid/run`, without savepoint and id.
        """
        arguments = list(self.own.arguments)
        for name, tasks in configuration.parallelism.items():
            arguments = [word.replace(f"{{{name}}}", str(tasks)) for word in arguments]
        body: dict[str, object] = {"programArgsList": arguments}
        if self.own.entry_class is not None:
            body["entryClass"] = self.own.entry_class
        if self.own.parallelism is not None:
            body["parallelism"] = self.own.parallelism
        if self.own.settings:
            body["flinkConfiguration"] = dict(self.own.settings)
        return body

    def submitted(self, rest: FlinkRest, job_id: str) -> Configuration | None:
        """Read with which configuration a job was submitted.

        Args:
            rest: the cluster.
            job_id: the job.

        Returns:
            The configuration; None where Flink does not tell it yet, or where it is asked for
            beside the submission.
        """
        if self.is_adaptive:
            return None
        try:
            with rest.reading():
                job = rest.job(job_id)
                return configuration_of(job, job_id, self.spec, levels_of_slots(self.spec))
        except FlinkError:
            return None

    def upload(self, rest: FlinkRest) -> str:
        """See that the cluster has the jar.

        Returns:
            The jar's id.

        Raises:
            FlinkError: It is neither a file nor one jar of the cluster.
        """
        if self._is_file:
            return rest.upload_jar(Path(self.own.jar))
        known = rest.jars()
        found = [one.id for one in known if self.own.jar in (one.id, one.name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise FlinkError(
                f"{rest.url} has {len(found)} jars named {self.own.jar!r}: {', '.join(found)}",
                key="where.program.jar",
                remedy="Name one by its id.",
            )
        raise FlinkError(
            f"{self.own.jar!r} is neither a file of this machine nor a jar of {rest.url}",
            key="where.program.jar",
            reason="NotFound",
            remedy=did_you_mean(self.own.jar, [one.name for one in known]),
        )

    def jar_by_hand(self, url: str) -> str:
        """Say how a person gives the jar to the cluster.

        Returns:
            A command, or where to look, before the command that uses the jar's id.
        """
        if not self._is_file:
            return f"with the id of {self.own.jar}, which {url}/jars lists"
        return upload_by_hand(Path(self.own.jar).absolute(), url)

    def placed(self, rest: FlinkRest, job_id: str, to: Configuration, timeout_s: float) -> None:
        """Ask the adaptive scheduler for the tasks of a job that was just submitted.

        Raises:
            FlinkError: It does not take them in time.
        """
        if not self.is_adaptive:
            return
        bounds = {
            one: {"parallelism": {"lowerBound": 1, "upperBound": tasks}}
            for one, tasks in self._by_id(to).items()
        }
        trouble: FlinkError | None = None
        for _ in until_timeout(timeout_s):
            try:
                rest.set_resource_requirements(job_id, bounds)
                return
            except FlinkError as error:  # its JobMaster begins only
                trouble = error
        assert trouble is not None
        raise trouble

    def check(self, rest: FlinkRest, job: JobAnswer) -> None:
        """Refuse a program that would not build this job, or that nobody tells its parallelism.

        Flink tells the plan of what a program builds.

        Args:
            rest: the cluster.
            job: the job, as it runs.

        Raises:
            FlinkError: The jar is not there, builds another job, or the same tasks always.
        """
        runs = {name: int(one["parallelism"]) for name, one in vertices_of(job, self.spec).items()}
        plan = self._plan(rest, Configuration(runs, {}))
        if plan.name != self.job_name:
            raise FlinkError(
                f"{self.own.jar} builds a job named {plan.name!r}; the running one is "
                f"{self.job_name!r}",
                key="where.program",
                remedy=f"{_SAY} A name that is another at every submission cannot be followed.",
            )
        self._check_graph(plan, {str(one["id"]): str(one["name"]) for one in job["vertices"]})
        if self.is_adaptive:
            return
        scaled = [
            v
            for v in self.spec.vertices
            if v.kind != "source" and v.scalable and v.max_parallelism > 1
        ]
        other = {v.name: runs[v.name] % v.max_parallelism + 1 for v in scaled}
        moved = self._plan(rest, Configuration({**runs, **other}, {})).parallelism
        kept = [name for name in other if moved.get(self.vertex_ids[name]) != other[name]]
        if kept:
            raise FlinkError(
                f"{self.own.jar} always gives {', '.join(kept)} the same number of tasks, and "
                f"{rest.url} changes none: it has not the adaptive scheduler",
                key="where.program.arguments",
                reason="Unsupported",
                remedy="Have the program take the tasks of each vertex as arguments, and write its "
                f"name in braces there, such as [--tasks, '{{{kept[0]}}}']; or set scalable: false "
                "for it in the job file; or start the cluster with jobmanager.scheduler: adaptive.",
            )

    def check_change(self, rest: FlinkRest, wanted: Configuration) -> None:
        """Refuse, before the job is stopped, what the program would not build.

        Raises:
            FlinkError: Some vertex would have another number of tasks, or another id.
        """
        if self.is_adaptive:
            return
        built, asked = self._plan(rest, wanted).parallelism, self._by_id(wanted)
        wrong = [
            f"{name} {built.get(one, 'no')} tasks instead of {asked[one]}"
            for name, one in self.vertex_ids.items()
            if built.get(one) != asked[one]
        ]
        if wrong:
            raise FlinkError(
                f"{self.own.jar} would give {', '.join(wrong)}",
                key="where.program.arguments",
                remedy="Have its arguments name the tasks of every vertex that is to change, "
                "without changing which operators are chained.",
            )

    def _by_id(self, configuration: Configuration) -> dict[str, int]:
        """Tasks of every vertex of the job by its id, those that are not in the job file too."""
        named = configuration.parallelism
        return {**self.others, **{self.vertex_ids[name]: named[name] for name in self.vertex_ids}}

    def _plan(self, rest: FlinkRest, configuration: Configuration) -> JobPlan:
        try:
            return rest.plan(self.upload(rest), self.run(configuration))
        except FlinkError as error:
            if error.reason in ("Unreachable", "Timeout") or error.key:
                raise
            raise FlinkError(
                f"{self.own.jar} builds no job with these arguments: {error.message}",
                key="where.program",
                remedy=_SAY,
            ) from error

    def _check_graph(self, plan: JobPlan, runs: Mapping[str, str]) -> None:
        """Refuse a plan of other vertices than those that run, whose names are given by id."""
        lost = [name for one, name in runs.items() if one not in plan.parallelism]
        if lost or len(runs) != len(plan.parallelism):
            raise FlinkError(
                f"{self.own.jar} builds another graph: {len(plan.parallelism)} vertices, and the "
                f"running job has {len(runs)}; not found by their ids: "
                f"{', '.join(map(repr, lost)) or 'none'}",
                key="where.program",
                remedy=f"{_SAY} Ids follow from the graph, chains included, or from uid().",
            )

    @property
    def _is_file(self) -> bool:
        return Path(self.own.jar).is_file()
