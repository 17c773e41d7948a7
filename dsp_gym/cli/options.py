"""Options that several commands have: each one declared once, with its type and its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# -- what is printed and recorded

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

TrackOption = Annotated[
    bool, typer.Option("--track/--no-track", help="Record with MLflow where it is installed.")
]

RegistryOption = Annotated[str, typer.Option("--uri", help="MLflow registry.")]

StoreOption = Annotated[str, typer.Option(help="MLflow store.")]

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
        help="Credentials for Prometheus: a file with user:password or a bearer token.",
    ),
]

KeepOption = Annotated[
    Path,
    typer.Option(metavar="DIR", help="With --prometheus: folder of the fetched samples."),
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
