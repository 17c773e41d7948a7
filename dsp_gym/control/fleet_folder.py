"""The folder of a discovered fleet: what shadow mode and the chart need, beside the job files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.discovery.document import Written
from dsp_gym.backends.discovery.kubernetes import REST_OF_RESOURCE
from dsp_gym.backends.flink.submissions import shown
from dsp_gym.backends.kubernetes.config import RESOURCE_NAME
from dsp_gym.backends.upstream.access import access_of
from dsp_gym.config.files import parse
from dsp_gym.config.strict_json import read_json
from dsp_gym.config.strict_yaml import dump_yaml
from dsp_gym.control.config import RunConfig, ServeConfig
from dsp_gym.errors import ConfigError

FOLDER = "fleet"
"""Of the configurations, inside the folder of the job files."""

DISCOVERED, VALUES, README, SHADOW = "discovered.json", "values.yaml", "README.md", "shadow.yaml"
POLICIES = ("planner", "ds2", "flink-autoscaler", "incumbent")
MOUNTED = "/etc/dsp-gym"
"""Where the chart puts job files."""


@dataclass(frozen=True, slots=True)
class FleetPlace:
    """Where the discovered jobs run, as the command line gave it; None: not given."""

    rest_url: str | None = None
    prometheus_url: str | None = None
    account: Path | None = None  # of Prometheus, or of Flink where there is no Prometheus
    labels: str | None = None
    namespace: str = "default"
    kubeconfig: Path | None = None
    selector: str | None = None  # labels of resources
    resource: str | None = None  # name of the only one


def fleet_files(files: Sequence[Written], out: Path, place: FleetPlace) -> dict[Path, str]:
    """Make the files that run a discovered fleet in shadow mode.

    Args:
        files: the job files.
        out: their folder.
        place: of the jobs.

    Returns:
        Text by path: Flink's names of the jobs, a configuration of shadow mode (one for each job of
        a plain Flink; none where only a Prometheus is known, nor on Kubernetes without one), values
        of the chart on Kubernetes, and the next commands.
    """
    folder = out / FOLDER
    jobs = [
        {"job": one.stem, "flink_name": one.found.name, "resource": one.found.resource}
        for one in files
    ]
    document = {"schema": "dsp-gym/discovered-jobs/1", "jobs": jobs}
    told = {folder / DISCOVERED: json.dumps(document, indent=2) + "\n"}
    runs = _runs(files, out.absolute(), place)
    for name, config in runs.items():
        where = parse(RunConfig, config, name).where
        told[folder / name] = f"# kind: shadow\n{dump_yaml(config, flow=None)}{how_to_act(where)}"
    if _is_on_kubernetes(place) and _single(files):
        told[folder / VALUES] = _values(files, place)
    told[folder / README] = _readme(files, out, place, list(runs))
    return told


def how_to_act(where: PlaceConfig) -> str:
    """Say in the configuration of a job on a plain Flink what only its owner knows.

    Args:
        where: of the configuration.

    Returns:
        Comments; nothing where the job is rescaled in place, or by the operator.
    """
    if where.kubernetes is not None or where.actuator != "resubmit":
        return ""
    lines = [
        "# With --apply the job is stopped with a savepoint and submitted again. Flink does not",
        "# tell how you submit it: say so under where, as in",
        "#   program:",
        "#     jar: words.jar                  # a file of this machine, or a jar of the cluster",
        "#     entry_class: com.example.Words  # none: that of the jar's manifest",
        "#     arguments: [--topic, words]",
    ]
    if where.savepoints is None:
        lines.append(
            "#   savepoints: s3://bucket/savepoints    # the cluster has no folder of its own"
        )
    return "\n".join(lines) + "\n"


def shadow_file(folder: Path) -> Path:
    """Find the configuration of shadow mode in the folder of a discovered fleet.

    Args:
        folder: as `dsp-gym discover --out` named it.

    Returns:
        Its only configuration.

    Raises:
        ConfigError: There is none, or several, as the jobs of a plain Flink have one each.
    """
    own = folder / FOLDER
    found = sorted(path for path in own.glob("*.yaml") if path.name != VALUES)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            "holds no configuration of shadow mode",
            file=own if own.is_dir() else folder,
            remedy="Write one from the running jobs: dsp-gym discover --flink URL --out "
            f"{shlex.quote(str(folder))} --overwrite",
        )
    commands = "; ".join(f"dsp-gym shadow {shlex.quote(str(path))}" for path in found[:3])
    raise ConfigError(
        f"holds {len(found)} configurations, one for each job of a Flink without Kubernetes",
        file=own,
        remedy=f"Run each beside its job: {commands}{' ...' if len(found) > 3 else ''}",
    )


def flink_names(folder: Path) -> dict[str, str]:
    """Look up what the jobs of a discovered fleet are called in Flink.

    Args:
        folder: of the job files.

    Returns:
        Flink's name by that of the job file; empty where nothing was discovered into the folder.
    """
    file = folder / FOLDER / DISCOVERED
    if not file.is_file():
        return {}
    document = read_json(file.read_text("utf-8"), file)
    jobs = document.get("jobs", ()) if isinstance(document, dict) else ()
    return {str(one["job"]): str(one["flink_name"]) for one in jobs}


def left_over(folder: Path, before: Iterable[str], written: Collection[Path]) -> str:
    """Name the files of an earlier discovery that a new one did not write again.

    Nothing is removed: they may hold what their owner added.

    Args:
        folder: of the job files.
        before: names of the job files of the earlier discovery.
        written: files of the new one.

    Returns:
        A remark with the command that removes them; empty where there is none.
    """
    jobs = [folder / f"{name}.yaml" for name in before]
    there = sorted([*filter(Path.is_file, jobs), *(folder / FOLDER).glob("*.yaml")])
    left = [shlex.quote(str(path)) for path in there if path not in written]
    if not written or not left:
        return ""
    return f"of jobs that were not found now, files are left; to remove them: rm {' '.join(left)}"


def _is_on_kubernetes(place: FleetPlace) -> bool:
    return place.selector is not None or place.resource is not None


def _runs(files: Sequence[Written], out: Path, place: FleetPlace) -> dict[str, dict[str, object]]:
    """Configurations of shadow mode by the names of their files."""
    rest: dict[str, object] = {"policies": list(POLICIES), "guardrails": "deployed"}
    if not _is_on_kubernetes(place):
        if place.rest_url is None:
            return {}
        if len(files) == 1:
            return {SHADOW: _plain_run(files[0], files, out, place) | rest}
        # They run side by side: each serves status and probes at its own two ports.
        return {
            f"{one.stem}-job.yaml" if f"{one.stem}.yaml" == VALUES else f"{one.stem}.yaml": {
                **_plain_run(one, files, out, place),
                **rest,
                "serve": {"port": ServeConfig().port + 2 * number},
            }
            for number, one in enumerate(files)
        }
    single = _single(files)
    if not single or place.prometheus_url is None:
        return {}
    job = str(out / f"{RESOURCE_NAME if place.selector else single[0].stem}.yaml")
    where = _on_kubernetes(place, place.rest_url)
    if place.kubeconfig is not None:
        where["kubernetes"]["kubeconfig"] = str(place.kubeconfig.absolute())
    if place.account is not None and place.prometheus_url is not None:
        where["kubernetes"]["prometheus_account"] = _account(place.account)
    return {SHADOW: {"job": job, "where": where, **rest}}


def _single(files: Sequence[Written]) -> list[Written]:
    """Leave out the jobs of a session cluster: they share one resource, which watches none."""
    return [one for one in files if resource_name(one) == one.stem]


def resource_name(one: Written) -> str | None:
    """Name the resource of a job on Kubernetes.

    Returns:
        Its name without kind and namespace; None elsewhere.
    """
    return None if one.found.resource is None else one.found.resource.rpartition("/")[2]


def _account(file: Path) -> dict[str, object]:
    """How a server is asked, from the file that the command line named."""
    found = access_of(file.absolute())
    assert found is not None
    return found.model_dump(mode="json", exclude_unset=True)


def _plain_run(
    one: Written, files: Sequence[Written], out: Path, place: FleetPlace
) -> dict[str, object]:
    run: dict[str, object] = {
        "job": str(out / f"{one.stem}.yaml"),
        "job_name": one.found.name,
        "where": _plain(one, files, place),
    }
    if _namesakes(one, files):  # they would share a journal
        run["journal"] = str(RunConfig.model_fields["journal"].default / one.found.job_id[:12])
    return run


def _namesakes(one: Written, files: Sequence[Written]) -> bool:
    """Return whether other jobs bear the name of a job that has an id of Flink."""
    bear = sum(other.found.name == one.found.name for other in files)
    return bear > 1 and re.fullmatch("[0-9a-f]{32}", one.found.job_id) is not None


def _plain(one: Written, files: Sequence[Written], place: FleetPlace) -> dict[str, object]:
    where: dict[str, object] = {"rest_url": place.rest_url, "metrics": "rest"}
    where["actuator"] = "adaptive" if one.found.scheduler == "adaptive" else "resubmit"
    if where["actuator"] == "resubmit" and one.found.savepoints is not None:
        where["savepoints"] = one.found.savepoints
    if place.account is not None:
        where["rest_account"] = _account(place.account)
    if _namesakes(one, files):
        where["job_id"] = one.found.job_id
    return where


def _on_kubernetes(place: FleetPlace, rest_url: str | None) -> dict[str, Any]:
    at: dict[str, object] = {"namespace": place.namespace}
    if place.selector is not None:
        at["selector"] = place.selector
    else:
        at["name"] = place.resource
    url = rest_url or f"{REST_OF_RESOURCE}.{place.namespace}:8081"
    if place.resource is not None:
        url = url.replace(RESOURCE_NAME, place.resource)
    at["rest_url"] = url
    at["prometheus_url"] = place.prometheus_url
    if place.prometheus_url is not None and place.labels is not None:
        at["labels"] = place.labels
    return {"kubernetes": at}


def _values(files: Sequence[Written], place: FleetPlace) -> str:
    """Values of the chart: the services are asked by the names that pods know."""
    name = RESOURCE_NAME if place.selector else place.resource
    single = _single(files)
    # The chart's own configuration is shadow.yaml, which a resource may be called as well.
    ending = "-job.yaml" if any(f"{one.stem}.yaml" == SHADOW for one in single) else ".yaml"
    where = _on_kubernetes(place, None)
    # The chart's own values are merged in: what must not be there is null.
    where["kubernetes"] |= {"name": None} if place.selector else {}
    config = {
        "job": f"{MOUNTED}/{name}{ending}",
        "where": where,
        "policies": list(POLICIES),
        "guardrails": "deployed",
    }
    head = [
        "# Values of deploy/helm for these jobs. The image stands in values.yaml of the chart, as",
        "# deploy/pin.py writes it.",
    ]
    head.append(
        "# prometheus_url is missing: give the values of a stack after these, or name it here."
        if place.prometheus_url is None
        else "# prometheus_url is the one that discovered the jobs: pods must reach it."
    )
    jobs = "\n".join(
        f"  {one.stem}{ending}: |\n"
        + "".join(f"    {line}".rstrip() + "\n" for line in _lines(one))
        for one in single
    )
    text = dump_yaml({"mode": "shadow", "config": config}, flow=None)
    return "\n".join(head) + f"\n{text}jobs:\n{jobs}"


def _lines(one: Written) -> list[str]:
    return one.text.rstrip("\n").split("\n")


def _readme(files: Sequence[Written], out: Path, place: FleetPlace, runs: Sequence[str]) -> str:
    folder = shlex.quote(str(out))
    lines = ["# Discovered jobs", "", "| job file | job in Flink |", "|---|---|"]
    for one in files:
        name = re.sub(r"([|\\`*_\[\]<>])", r"\\\1", shown(one.found.name))
        lines.append(f"| `{one.stem}.yaml` | {name} |")
    steps = []
    if place.prometheus_url is not None:
        told = "" if place.labels is None else f" --labels {shlex.quote(place.labels)}"
        told += "" if place.account is None else f" --account {shlex.quote(str(place.account))}"
        url = shlex.quote(place.prometheus_url)
        steps.append(
            ("What would each policy have saved?",
             [f"dsp-gym backtest --prometheus {url} --jobs {folder}{told}"])
        )  # fmt: skip
    if len(runs) == 1:
        commands = [f"dsp-gym shadow {folder}"]
    else:
        commands = [f"dsp-gym shadow {shlex.quote(str(out / FOLDER / run))}" for run in runs]
    if runs:
        steps.append(("Watch policies beside the jobs; nothing is changed", commands))
    elif _is_on_kubernetes(place) and place.prometheus_url is None:
        steps.append(
            ("Shadow mode on Kubernetes takes its metrics from Prometheus: name the one that "
             "scrapes the TaskManagers, in the command that discovered these jobs",
             [f"dsp-gym discover --prometheus URL --out {folder} --overwrite ..."])
        )  # fmt: skip
    else:
        steps.append(
            ("Shadow mode needs Flink itself, or Kubernetes: discover the jobs there",
             [f"dsp-gym discover --flink URL --out {folder} --overwrite"])
        )  # fmt: skip
    if runs and not _is_on_kubernetes(place):
        redeploys = any(one.found.scheduler != "adaptive" for one in files)
        first = " (configurations with actuator: resubmit need a program first)" * redeploys
        steps.append(
            (f"Let a policy act, once a backtest of its journal says promote{first}",
             [f"{command} --apply --sole" for command in commands])
        )  # fmt: skip
    if _is_on_kubernetes(place) and _single(files):
        values = shlex.quote(str(out / FOLDER / VALUES))
        stack = "" if place.prometheus_url else " --values deploy/helm/stacks/STACK.yaml"
        steps.append(
            ("The same in the cluster, from a checkout of dsp-gym with a pinned image",
             ["helm install gym deploy/helm --namespace gym --create-namespace "
              f"--values {values}{stack}"])
        )  # fmt: skip
    for number, (title, commands) in enumerate(steps, 1):
        lines += ["", f"{number}. {title}:", "", *(f"       {command}" for command in commands)]
    return "\n".join(lines) + "\n"
