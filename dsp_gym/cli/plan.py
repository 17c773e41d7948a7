"""`dsp-gym plan`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import counted, print_json, print_table
from dsp_gym.cli.validity import print_validity
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.evaluation.deployment import Deployment
    from dsp_gym.job.spec import JobSpec
    from dsp_gym.job.validity import Validity
    from dsp_gym.policies.planner import CapacityPlan, ProfilePlan

__all__ = ["register"]

_EXAMPLES = """
Examples:

  dsp-gym plan streambed-q11 --rate 2e6

  dsp-gym plan streambed-q5 --rate 300000 --memory 2,3 --policy streambed-slow

  dsp-gym plan nexmark-q11 --rate 100000 --save q11-capacity.json --json

  dsp-gym plan nexmark-q11 --rate 1e6 --max-slots 256

  dsp-gym plan nexmark-q8 --rate 150000 --load diurnal

  dsp-gym plan flink-q11 --rate 4000 --backend flink --policy streambed-local
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EXAMPLES)(plan)


def plan(
    job: Annotated[str, typer.Argument(help="A shipped job, or the path of a job file.")],
    rate: Annotated[float, typer.Option(help="Records/s over all sources to plan for.")],
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL,...",
            help="Memory levels of a slot to consider; default: all of the job file.",
        ),
    ] = None,
    testbed_slots: Annotated[
        int | None,
        typer.Option(min=1, help="Largest budget to try, without sources.", show_default="48"),
    ] = None,
    max_slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2048,
            help="Most tasks of a vertex; may exceed the job file's quota and key groups.",
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="Testbed: simulated, or flink (a local cluster).")
    ] = "simulated",
    policy: Annotated[
        str, typer.Option(help="A policy that can plan: a name or a YAML file.")
    ] = "streambed",
    save: Annotated[
        Path | None,
        typer.Option(help="Write the capacity model, for the policy's 'model' parameter."),
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Folder of the local cluster (--backend flink).")
    ] = None,
    load: Annotated[
        str,
        typer.Option(
            metavar="LOAD",
            help="A day of load with its peak at the rate, shipped or a file; Flink's two "
            "schedulers are compared under it. 'none': they are not compared.",
        ),
    ] = "day-with-bursts",
    as_json: JsonOption = False,
) -> None:
    """Plan capacity: slots, memory, parallelism and cost for a rate, from small trial runs.

    Then says which of Flink's two schedulers to deploy the job with: the default one (memory per
    vertex, a rescale redeploys) or the adaptive one (in place, one memory for all).
    """
    from dsp_gym.job.catalog import load_job
    from dsp_gym.policies.capabilities import capabilities_of
    from dsp_gym.policies.planner import PlanRequest
    from dsp_gym.policies.registry import make

    if backend not in ("simulated", "flink"):
        raise ConfigError(
            "--backend is simulated or flink", value=backend, remedy="Choose one of the two."
        )
    plan_capacity = capabilities_of(make(policy)).plan_capacity
    if plan_capacity is None:
        raise ConfigError(
            f"policy '{policy}' cannot plan", key="policy", remedy="Take one that can: streambed."
        )
    request = PlanRequest(
        load_job(job),
        rate,
        _levels(memory),
        testbed_slots,
        max_slots,
        "flink" if backend == "flink" else "simulated",
        home,
        save,
        (lambda text: None) if as_json else (lambda text: typer.echo(text, err=True)),
    )
    found = plan_capacity(request)
    validity = _validity(request.spec, found) if backend == "simulated" else None
    compared = _compared(request.spec, rate, load, max_slots)
    if as_json:
        print_json(
            {
                **_fields(found),
                "validity": _document(validity, found),
                "deployments": [_fields(one) for one in compared],
            }
        )
        return
    _print(found)
    if validity is not None:
        from dsp_gym.pages import money, number

        print_validity(validity, found.mst_per_s)
        ends = validity.interval(1.0)
        if ends is not None:
            low, high = (found.cost_per_hour * factor for factor in ends)
            typer.echo(
                f"90 % interval of the cost of that rate: {number(low)} to "
                f"{money(high, found.currency)} per hour"
            )
    if compared:
        _print_deployments(compared, load)


def _compared(
    spec: JobSpec, rate: float, load: str, max_slots: int | None
) -> tuple[Deployment, ...]:
    """The job under either scheduler for a day; none where nobody asked, or knows the best plan."""
    from dsp_gym.evaluation.deployment import compare_deployments
    from dsp_gym.evaluation.run import PLAN
    from dsp_gym.policies.registry import is_installed

    if load == "none" or not is_installed(PLAN):
        return ()
    if max_slots is not None:
        spec = spec.model_copy(update={"max_parallelism_per_vertex": max_slots})
    return compare_deployments(spec, rate, load)


def _validity(spec: JobSpec, found: CapacityPlan) -> Validity:
    """What the plan rests on: the job model, for the planned configuration and rate."""
    from dsp_gym.job.validity import validity_of

    return validity_of(spec, found.parallelism, found.memory_level, found.mst_per_s)


def _fields(found: CapacityPlan | Deployment) -> dict[str, object]:
    from dsp_gym.job.cost import HOURS_A_MONTH
    from dsp_gym.policies.planner import CapacityPlan

    document = {one.name: getattr(found, one.name) for one in fields(found)}
    if isinstance(found, CapacityPlan):
        document["cost_per_month"] = HOURS_A_MONTH * found.cost_per_hour
    return document


def _document(validity: Validity | None, found: CapacityPlan) -> dict[str, object] | None:
    """The validity with the interval of the cost: slots follow capacity in proportion."""
    if validity is None:
        return None
    document = validity.to_json(found.mst_per_s)
    ends = validity.interval(found.cost_per_hour)
    cost = None if ends is None else {"low_per_hour": ends[0], "high_per_hour": ends[1]}
    return {**document, "cost_interval": cost}


def _levels(text: str | None) -> tuple[int, ...] | None:
    """The memory levels of `LEVEL,...`.

    >>> _levels("0, 2")
    (0, 2)
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.removeprefix("-").isdecimal() for part in parts):
        raise ConfigError(
            "--memory takes levels of the job file", value=text, remedy="For instance: --memory 0,1"
        )
    return tuple(sorted({int(part) for part in parts}))


def _print(found: CapacityPlan) -> None:
    from dsp_gym.job.cost import HOURS_A_MONTH
    from dsp_gym.pages import money, number

    typer.echo(
        f"{found.job}: {found.slots} slots of {_profile(found.profile)} for "
        f"{found.rate_per_s:,.6g} records/s, {money(found.cost_per_hour, found.currency)} per hour "
        f"or {money(HOURS_A_MONTH * found.cost_per_hour, found.currency)} per month"
    )
    print_table(
        ["vertex", "parallelism", "level"],
        [
            [name, tasks, "none" if found.memory_level[name] == -1 else found.memory_level[name]]
            for name, tasks in found.parallelism.items()
        ],
        right=["parallelism", "level"],
    )
    typer.echo()
    head = f"{found.currency} per hour"
    print_table(
        ["profile", "slots", head],
        [
            [_profile(p), p.slots, None if p.cost_per_hour is None else number(p.cost_per_hour)]
            for p in found.profiles
        ],
        right=["slots", head],
    )
    low, high = found.model["learned_slots"]
    typer.echo(
        f"\nAsked for {found.planned_per_s:,.6g}/s; {found.slots} slots sustain "
        f"{found.predicted_per_s:,.6g}/s by the {found.model['form']} model, learned from "
        f"{counted(len(found.measured), 'trial')} with {low} to {high} slots "
        f"({found.effort['testbed_s'] / 60:.0f} min of the testbed), and "
        f"{found.mst_per_s:,.6g}/s by the job file."
    )
    if found.changed is not None:
        typer.echo(f"{found.slots} slots: {found.changed}.")
    for note in found.notes:
        typer.echo(f"Note: {note}.")


def _print_deployments(found: tuple[Deployment, ...], load: str) -> None:
    from dsp_gym.evaluation.deployment import verdict
    from dsp_gym.pages import number

    typer.echo()
    cost, price = (f"{name}, {found[0].currency} per day" for name in ("cost", "price"))
    print_table(
        ["scheduler", "memory level", cost, "late", "rescales per day", price],
        [
            [
                one.scheduler,
                "by vertex" if one.memory_level is None else one.memory_level,
                number(one.cost_per_day),
                f"{100 * one.late_share:.2g} %",
                f"{one.rescales_per_day:.3g}",
                number(one.price_per_day),
            ]
            for one in found
        ],
        title=f"a day of {load} with its peak near that rate, best plan for the known load",
        right=["memory level", cost, "late", "rescales per day", price],
    )
    typer.echo(verdict(found))


def _profile(profile: ProfilePlan) -> str:
    return f"level {profile.memory_level} ({profile.managed_mib:g} MiB managed)"
