"""Options that several commands have, each declared once, and the notations of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.errors import ConfigError

# -- what is printed and recorded

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

RegistryOption = Annotated[str, typer.Option("--uri", help="MLflow registry.")]

StoreOrNoneOption = Annotated[
    str,
    typer.Option(
        "--track",
        metavar="URI|none",
        help="Record in this MLflow store, where MLflow is installed; none: no record.",
    ),
]

# -- which policies

InsteadOption = Annotated[
    str | None,
    typer.Option(
        "--policies",
        metavar="A,B,C",
        help="Policies in place of the configuration's: names, YAML files or folders.",
        show_default=False,
    ),
]

PoliciesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Run these policies: labels of the benchmark, or further ones by name, YAML file or "
        "folder; 'all' stands for all of the benchmark's. What they are compared with always runs.",
    ),
]

ConfigurationOption = Annotated[
    str | None,
    typer.Option(
        metavar="VERTEX[=P][@X],...",
        help="Parallelism P and memory level X (-1: none) of vertices, such as "
        "session=4@1,sink@-1. Others keep the job file's.",
    ),
]

# -- under which load

RateOption = Annotated[
    float | None,
    typer.Option(
        metavar="RECORDS/S",
        help="A constant rate over all sources, in place of --load.",
        show_default=False,
    ),
]

# -- where it runs, and what becomes of an interrupted run

MasterOption = Annotated[
    str | None,
    typer.Option(
        help="Run on Spark: its master, such as local[2], spark://host:7077, yarn or k8s://... Its "
        "settings: $SPARK_CONF_DIR/spark-defaults.conf. Results are the same everywhere."
    ),
]

WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes on this machine. Default: by the amount of work, at most one per core.",
    ),
]

ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue an interrupted run: only missing parts run.")
]

OverwriteOption = Annotated[
    bool,
    typer.Option("--overwrite", help="Remove the results of an interrupted run, and start again."),
]

# -- where jobs run, and where their history is

NamespaceOption = Annotated[str, typer.Option(help="Namespace of the FlinkDeployments.")]

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Kubeconfig with API server and account. Default: the pod's."
    ),
]

LabelsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FLINKS=THEIRS,...",
        help="Prometheus labels that differ from Flink's, such as job_name=flink_job.",
    ),
]

AccountOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with user:password or a bearer token, or FILE.yaml: file, ca_file, cert_file, "
        "key_file and proxy.",
    ),
]

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="FOLDER",
        help="The cluster's folder: logs, savepoints, samples. Default: "
        "$XDG_STATE_HOME/dsp-gym/flink.",
    ),
]


def listed(value: str | None) -> tuple[str, ...]:
    """Take the value of an option such as `A,B,C` apart.

    Returns:
        Each part once, in the order given; none where nothing was given.

    >>> listed("ds2, static,ds2"), listed(None)
    (('ds2', 'static'), ())
    """
    parts = (part.strip() for part in (value or "").split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


# -- what values mean


def shipped(kind: str) -> Callable[[str], list[str]]:
    """Complete the names of shipped configurations; paths are left to the shell.

    Use as ``typer.Argument(autocompletion=shipped("jobs"))``.

    Returns:
        A function from the text typed so far to the names that begin with it, sorted.
    """

    def complete(incomplete: str) -> list[str]:
        from dsp_gym.config.files import names

        return [name for name in names(kind) if name.startswith(incomplete)]

    return complete


_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def seconds(text: str, option: str = "--duration") -> int:
    """Read a duration.

    Args:
        text: A number with its unit.
        option: The option, for errors.

    Returns:
        Whole seconds, rounded.

    Raises:
        ConfigError: It is no duration.

    >>> seconds("90"), seconds("90s"), seconds("1.5h")
    (90, 90, 5400)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if match is None or match[2] not in _UNITS:
        raise ConfigError(
            "is not a duration",
            key=option,
            value=text,
            remedy="Write a number with s, m, h or d, such as 90s.",
        )
    return round(float(match[1]) * _UNITS[match[2]])


def names_of(text: str, option: str) -> list[str]:
    """Read several names with commas between.

    Args:
        text: The value of the option.
        option: The option, for errors.

    Returns:
        At least one name, each once, in the order given.

    Raises:
        ConfigError: A name is empty, or given twice.

    >>> names_of("ds2, planner", "--policies")
    ['ds2', 'planner']
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(
            "takes different names with commas between",
            key=option,
            value=text,
            remedy=f"For instance: {option} ds2,planner",
        )
    return names


def refuse_given(options: Mapping[str, object], why: str, remedy: str = "Leave it out.") -> None:
    """Refuse options that do not apply to what a command was asked for.

    Args:
        options: Value by option; None or False: it was not given.
        why: The reason, for the error.
        remedy: The next step.

    Raises:
        ConfigError: One of them was given.
    """
    for option, value in options.items():
        if value is not None and value is not False:
            shown = None if value is True else str(value)
            raise ConfigError(why, key=option, value=shown, remedy=remedy)


def constant_rate(rate: float | None, load: str | None) -> float | None:
    """Check a rate, and that it does not stand beside a load.

    Args:
        rate: The value of `--rate`, or None.
        load: The value of `--load`, or None.

    Returns:
        Records per second; None where none were given.

    Raises:
        ConfigError: Both were given, or the rate is no positive number.
    """
    if rate is None:
        return None
    refuse_given({"--load": load}, "does not go with --rate", "Leave one of them out.")
    if not 0 < rate < math.inf:
        raise ConfigError(
            "is no rate", key="--rate", value=f"{rate:g}", remedy="For instance --rate 2000."
        )
    return rate


def assignments(text: str | None) -> tuple[dict[str, int], dict[str, int]]:
    """Read `VERTEX[=P][@X],...`.

    Args:
        text: The value of `--configuration`, or None.

    Returns:
        Parallelism and memory level by vertex name; empty without a text.

    Raises:
        ConfigError: A pair is none, or names a vertex twice.

    >>> assignments("map=3,state=8@2,sink@-1")
    ({'map': 3, 'state': 8}, {'state': 2, 'sink': -1})
    """
    tasks: dict[str, int] = {}
    levels: dict[str, int] = {}
    for pair in text.split(",") if text else ():
        match = re.fullmatch(r"([^=@]+)(?:=\s*+(\d+)\s*+)?(?:@\s*+(-?\d+)\s*+)?", pair)
        name = "" if match is None else match[1].strip()
        if match is None or match[2] is match[3] is None or not name:
            raise ConfigError(
                "--configuration takes VERTEX=PARALLELISM, VERTEX@LEVEL or both",
                value=pair,
                remedy="For instance: --configuration map=3,state=8@2,sink@-1",
            )
        if name in tasks or name in levels:
            raise ConfigError(
                f"--configuration names '{name}' twice", remedy="Keep one of the two."
            )
        if match[2] is not None:
            tasks[name] = int(match[2])
        if match[3] is not None:
            levels[name] = int(match[3])
    return tasks, levels


def refuse_no_url(option: str, url: str | None, example: str) -> None:
    """Refuse the value of an option that is no URL.

    Args:
        option: The option, for the error.
        url: Its value; None: it was not given.
        example: A URL, for the remedy.

    Raises:
        ConfigError: It does not begin as one.
    """
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(
            "a URL begins with http:// or https://",
            key=option,
            value=url,
            remedy=f"Write it out: {example}",
        )
