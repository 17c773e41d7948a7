"""`dsp-gym policy show`, `import`, `pull` and `promote`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dsp_gym.cli.options import JsonOption, RegistryOption, shipped
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.errors import ConfigError, StorageError
from dsp_gym.shared_names import import_ours

if TYPE_CHECKING:
    from dsp_gym.experiments.experiment import ExperimentConfig

DEFAULT_URI = "sqlite:///mlflow.db"


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="Inspect or import a trained policy; fetch or promote one in the registry.",
        no_args_is_help=True,
    )
    group.command(
        epilog="Examples:\n\n"
        "  dsp-gym policy show runs/q11/latest/policy\n\n"
        "  dsp-gym policy show models:/q11@champion --json"
    )(show)
    group.command(
        "import",
        epilog="Examples:\n\n"
        "  dsp-gym policy import model.zip --job nexmark-q11\n\n"
        "  dsp-gym policy import model.zip --experiment q11 --out policies/mine\n\n"
        "  dsp-gym policy import agent.pt --job nexmark-q11 --activation relu --masked\n\n"
        "  dsp-gym evaluate quick --policies all,policies/model     how good it is",
    )(import_)
    group.command(
        epilog="Examples:\n\n"
        "  dsp-gym policy pull models:/q11@champion --out policies/q11\n\n"
        "  dsp-gym policy pull models:/q11@champion --out policies/q11 --overwrite\n\n"
        "  dsp-gym policy pull models:/q11/3 --uri sqlite:////srv/mlflow.db\n\n"
        "  dsp-gym policy pull models:/q11/3@sha256:DIGEST --out policies/q11   or nothing"
    )(pull)
    group.command(epilog="Examples:\n\n  dsp-gym policy promote models:/q11/3 --alias champion")(
        promote
    )
    app.add_typer(group, name="policy")


def show(
    policy: Annotated[str, typer.Argument(help="A policy folder, or models:/NAME@ALIAS.")],
    uri: RegistryOption = DEFAULT_URI,
    as_json: JsonOption = False,
) -> None:
    """Show a trained policy: network, jobs, seeds, versions, figures."""
    import tempfile

    from dsp_gym.policies.pins import digest_of

    # By name: the library stands below the agents.
    folder_module: Any = import_ours("agents.folder")
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(policy)
        if policy.startswith("models:/"):
            from dsp_gym.trackers.mlflow import pull as fetch

            folder = fetch(policy, Path(aside) / "policy", uri)
        document, _ = folder_module.read_any(folder)
        digest = digest_of(folder)
        card = folder / folder_module.CARD
        text = card.read_text(encoding="utf-8") if card.is_file() else ""
    if as_json:
        print_json({**document.model_dump(mode="json", by_alias=True), "digest": digest})
        return
    print_table(["", ""], [*folder_module.describe(document).items(), ("digest", digest)])
    typer.echo(f"\n{text}" if text else "")


_ExperimentOption = Annotated[
    str | None,
    typer.Option(
        help="Experiment with the environment of its training.",
        autocompletion=shipped("experiments"),
    ),
]


_MaskedOption = Annotated[
    bool | None,
    typer.Option(
        "--masked/--unmasked",
        help="Whether it was trained with masks of valid actions. Default: as the file says.",
        show_default=False,
    ),
]


_NormalisationOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="An .npz with `mean` and `var` of the observation, if VecNormalize was used.",
    ),
]


def import_(
    model: Annotated[
        Path,
        typer.Argument(
            help="File of model.save(...) of Stable-Baselines3, or of torch.save(state_dict).",
            metavar="FILE",
        ),
    ],
    experiment: _ExperimentOption = None,
    job: Annotated[
        str | None,
        typer.Option(
            help="Instead: the job of gymnasium.make(..., job=JOB).", autocompletion=shipped("jobs")
        ),
    ] = None,
    action: Annotated[
        Literal["vertex", "capacity"], typer.Option(help="With --job: the action space.")
    ] = "vertex",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to create. Default: policies/FILE's name."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the policy in that folder.")
    ] = False,
    masked: _MaskedOption = None,
    activation: Annotated[
        str | None,
        typer.Option(help="tanh or relu. Default: as the file says, else as the library's own."),
    ] = None,
    normalisation: _NormalisationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn a model saved by Stable-Baselines3 or PyTorch into a policy folder.

    The folder holds arrays; nothing of the file is executed. The policy decides as the model does,
    takes the best action, and can be evaluated, and shadowed like any other.
    """
    from dsp_gym.policies.pins import digest_of
    from dsp_gym.policies.registry import POLICY_FILE

    folder = out or Path("policies") / model.stem
    if folder.exists() and not (overwrite and (folder / POLICY_FILE).is_file()):
        raise StorageError(
            "there is something already",
            file=folder,
            remedy="Choose another folder with --out, or replace a policy there with --overwrite.",
        )
    config = _trained_in(experiment, job, action, folder)
    # By name: the library stands below the agents.
    importing: Any = import_ours("agents.importing")
    told = importing.Told(masked, activation, normalisation)
    made = importing.import_model(model, config, folder, told)
    if as_json:
        print_json({"policy": made, "digest": digest_of(made)})
        return
    words = ["dsp-gym", "evaluate", experiment or "quick", "--policies", f"all,{made}"]
    typer.echo(f"policy  {made}\nnext    {shlex.join(words)}")


def _trained_in(
    experiment: str | None, job: str | None, action: str, folder: Path
) -> ExperimentConfig:
    """The experiment of a name, or one of a job in the default environment."""
    from dsp_gym.config.files import find, load_model, parse
    from dsp_gym.envs.scenarios import DEFAULT_LOADS
    from dsp_gym.experiments.experiment import ExperimentConfig

    if (experiment is None) == (job is None):
        raise ConfigError(
            "the environment that it was trained in is not known"
            if job is None
            else "name either an experiment or a job",
            key="--experiment",
            remedy="Give --experiment NAME, or --job JOB for gymnasium.make's own environment.",
        )
    if experiment is not None:
        return load_model(ExperimentConfig, "experiments", find("experiments", experiment))
    name = re.sub(r"[^a-z0-9._-]+", "-", folder.name.lower()).strip("-._") or "imported"
    document = {"name": name, "jobs": [job], "loads": DEFAULT_LOADS, "env": {"action": action}}
    return parse(ExperimentConfig, document, "--job")


def pull(
    address: Annotated[
        str,
        typer.Argument(
            help="models:/NAME@ALIAS or models:/NAME/VERSION; with @sha256:DIGEST behind it, no "
            "other content is taken."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to create. Default: policies/NAME."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the policy in that folder.")
    ] = False,
    uri: RegistryOption = DEFAULT_URI,
    as_json: JsonOption = False,
) -> None:
    """Fetch a policy folder from MLflow's model registry, and print its digest."""
    from dsp_gym.policies.pins import digest_of
    from dsp_gym.trackers.mlflow import pull as fetch

    name = address.removeprefix("models:/").partition("@")[0].partition("/")[0]
    folder = fetch(address, out or Path("policies") / name, uri, replace=overwrite)
    if as_json:
        print_json({"address": address, "policy": folder, "digest": digest_of(folder)})
    else:
        typer.echo(f"{address} is in {folder}\npinned  {folder}@{digest_of(folder)}")


def promote(
    address: Annotated[str, typer.Argument(help="models:/NAME/VERSION.")],
    alias: Annotated[str, typer.Option(help="The alias to move.")] = "champion",
    uri: RegistryOption = DEFAULT_URI,
    as_json: JsonOption = False,
) -> None:
    """Move an alias to a version, and show its verdict of `dsp-gym backtest`."""
    from dsp_gym.trackers.mlflow import promote as move

    found = move(address, alias, uri)
    verdict = found.get("shadow.verdict")
    if as_json:
        print_json({"version": found["version"], "alias": alias, "verdict": verdict})
        return
    typer.echo(f"{alias}  version {found['version']}")
    typer.echo(f"verdict  {verdict or 'none: it was not watched in shadow mode'}")
