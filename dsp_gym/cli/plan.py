"""`dsp-gym plan`: resources for a rate, or the rate of a configuration."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsp_gym.cli.mst import print_validity, show_mst
from dsp_gym.cli.options import ConfigurationOption, JsonOption, refuse_given, shipped
from dsp_gym.cli.output import counted, print_json, print_table
from dsp_gym.errors import ConfigError
from dsp_gym.pages import money, number, percent

if TYPE_CHECKING:
    from dsp_gym.evaluation.deployment import Deployment
    from dsp_gym.job.spec import JobSpec
    from dsp_gym.job.validity import Validity
    from dsp_gym.policies.planner import CapacityPlan, PlannerBackend, PlanRequest, ProfilePlan

EXAMPLES = """
Examples:

  dsp-gym plan streambed-q11 --rate 2e6

  dsp-gym plan streambed-q5 --rate 300000 --memory 2,3 --policy streambed-slow

  dsp-gym plan nexmark-q11 --rate 100000 --out q11-capacity.json --json

  dsp-gym plan nexmark-q11 --rate 1e6 --max-slots 256

  dsp-gym plan nexmark-q8 --rate 150000 --load diurnal

  dsp-gym plan flink-q11 --rate 4000 --testbed flink --policy streambed-local

  dsp-gym plan nexmark-q11 --configuration session=6@1,sink@-1     the rate that it sustains

  dsp-gym plan streambed-q5 --slots 48 --slot-memory-mib 2048     the rate of 48 slots
"""


_SlotsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Task slots without sources, with sinks: placed for the highest rate. With --rate: "
        "largest budget to try, default 48.",
    ),
]

_SlotMemoryMibOption = Annotated[
    float | None,
    typer.Option(
        min=1,
        help="Without --rate: TaskManager process memory / slots, MiB; its managed memory "
        "(fraction 0.4) becomes level 0.",
    ),
]

_MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL,...",
        help="Memory levels of a slot to consider; default: all of the job file.",
    ),
]

_MaxSlotsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=2048,
        help="Most tasks of a vertex; may exceed the job file's quota and key groups.",
    ),
]


_TestbedOption = Annotated[
    str | None,
    typer.Option(
        metavar="simulated|flink|FOLDER",
        help="Place of the trial runs: the simulation (default), the local Flink cluster, or "
        "the one in a folder.",
    ),
]

_LoadOption = Annotated[
    str | None,
    typer.Option(
        metavar="LOAD",
        help="A day of load with its peak at the rate, shipped or a file; Flink's two "
        "schedulers are compared under it. 'none': no comparison. Default: day-with-bursts.",
    ),
]

_OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write the capacity model, for the policy's 'model' parameter."
    ),
]


def plan(
    job: Annotated[
        str,
        typer.Argument(
            help="A shipped job, or the path of a job file.", autocompletion=shipped("jobs")
        ),
    ],
    rate: Annotated[
        float | None, typer.Option(help="Records/s over all sources to plan for.")
    ] = None,
    configuration: ConfigurationOption = None,
    slots: _SlotsOption = None,
    slot_memory_mib: _SlotMemoryMibOption = None,
    memory: _MemoryOption = None,
    max_slots: _MaxSlotsOption = None,
    policy: Annotated[
        str | None,
        typer.Option(help="A policy that can plan: a name or a YAML file. Default: streambed."),
    ] = None,
    testbed: _TestbedOption = None,
    load: _LoadOption = None,
    out: _OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan slots, memory, parallelism and cost for a rate; or show the rate of a configuration.

    With --rate: learns from small trial runs, and says with which of Flink's two schedulers to
    deploy the job: the default one (memory per vertex, a rescale redeploys) or the adaptive one (in
    place, one memory for all). Without: the maximal sustainable throughput (MST).
    """
    from dsp_gym.job.catalog import load_job
    from dsp_gym.job.validity import validity_of
    from dsp_gym.policies.planner import PlanRequest

    if rate is None:
        given: dict[str, object] = {"--memory": memory, "--max-slots": max_slots}
        given |= {"--policy": policy, "--testbed": testbed, "--load": load, "--out": out}
        refuse_given(given, "applies only with --rate", "Add --rate, or leave it out.")
        show_mst(load_job(job), configuration, slots, slot_memory_mib, as_json)
        return
    fixed = {"--configuration": configuration, "--slot-memory-mib": slot_memory_mib}
    refuse_given(fixed, "applies only without --rate")
    place, home = _testbed(testbed or "simulated")
    request = PlanRequest(load_job(job), rate, _levels(memory), slots, max_slots, place, home, out)
    if not as_json:
        request = replace(request, tell=partial(typer.echo, err=True))
    found = _planned(policy or "streambed", request)
    planned = (found.parallelism, found.memory_level, found.mst_per_s)
    validity = validity_of(request.spec, *planned) if place == "simulated" else None
    day = load or "day-with-bursts"
    compared = _compared(request.spec, rate, day, max_slots)
    if as_json:
        print_json(_document(found, validity) | {"deployments": compared})
        return
    _print(found)
    _print_validity(validity, found)
    if compared:
        _print_deployments(compared, day)


def _testbed(text: str) -> tuple[PlannerBackend, Path | None]:
    """Read `--testbed`: the backend, and the folder of a cluster."""
    if text == "simulated":
        return "simulated", None
    if text == "flink":
        return "flink", None
    if Path(text).is_dir():
        return "flink", Path(text)
    raise ConfigError(
        "is neither simulated or flink, nor a folder",
        key="--testbed",
        value=text,
        remedy="Choose one of the two, or start a cluster: dsp-gym flink up --home FOLDER",
    )


def _planned(policy: str, request: PlanRequest) -> CapacityPlan:
    from dsp_gym.policies.capabilities import capabilities_of
    from dsp_gym.policies.registry import make

    plan_capacity = capabilities_of(make(policy)).plan_capacity
    if plan_capacity is None:
        raise ConfigError(
            f"policy '{policy}' cannot plan", key="policy", remedy="Take one that can: streambed."
        )
    return plan_capacity(request)


def _print_validity(validity: Validity | None, found: CapacityPlan) -> None:
    if validity is None:
        return
    print_validity(validity, found.mst_per_s)
    ends = validity.interval(1.0)
    if ends is not None:
        low, high = (found.cost_per_hour * factor for factor in ends)
        typer.echo(
            f"90 % interval of the cost of that rate: {number(low)} to "
            f"{money(high, found.currency)} per hour"
        )


def _compared(
    spec: JobSpec, rate: float, load: str, max_slots: int | None
) -> tuple[Deployment, ...]:
    """Compare both schedulers over a day; empty where nobody asked, or knows the best plan."""
    from dsp_gym.evaluation.deployment import compare_deployments
    from dsp_gym.evaluation.run import PLAN
    from dsp_gym.policies.registry import is_installed

    if load == "none" or not is_installed(PLAN):
        return ()
    if max_slots is not None:
        spec = spec.model_copy(update={"max_parallelism_per_vertex": max_slots})
    return compare_deployments(spec, rate, load)


def _document(found: CapacityPlan, validity: Validity | None) -> dict[str, Any]:
    """Build the JSON, with the interval of the cost: slots follow capacity in proportion."""
    from dsp_gym.config.strict_json import plain
    from dsp_gym.job.cost import HOURS_A_MONTH

    document: dict[str, Any] = plain(found)
    document |= {"cost_per_month": HOURS_A_MONTH * found.cost_per_hour, "validity": None}
    if validity is not None:
        ends = validity.interval(found.cost_per_hour)
        cost = None if ends is None else {"low_per_hour": ends[0], "high_per_hour": ends[1]}
        document["validity"] = validity.to_json(found.mst_per_s) | {"cost_interval": cost}
    return document


def _levels(text: str | None) -> tuple[int, ...] | None:
    """Read the memory levels of `LEVEL,...`.

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

    typer.echo()
    cost, price = (f"{name}, {found[0].currency} per day" for name in ("cost", "price"))
    print_table(
        ["scheduler", "memory level", cost, "late", "rescales per day", price],
        [
            [
                one.scheduler,
                "by vertex" if one.memory_level is None else one.memory_level,
                number(one.cost_per_day),
                f"{percent(one.late_share)} %",
                number(one.rescales_per_day),
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
