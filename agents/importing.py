"""The import of another library's model into a policy folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from agents.folder import (
    SCHEMA,
    ActionDocument,
    ObservationDocument,
    PolicyDocument,
    write_folder,
)
from agents.foreign import PlainLayers, plain_layers, read_model
from agents.network import NetworkShape, Weights
from agents.provenance import config_text, data_hashes, job_hashes
from dsp_gym import __version__
from dsp_gym.arrays import Floats32
from dsp_gym.envs.action import LOGITS, MEMORY_NAMES, MOVE_NAMES
from dsp_gym.envs.capacity import CAPACITY_FEATURES, KAPPAS
from dsp_gym.envs.capacity.action import CHOICES
from dsp_gym.envs.observation import FJ, FV, JOB_FEATURES, VERTEX_FEATURES, ObservationLayout
from dsp_gym.envs.single_move import choices_of
from dsp_gym.errors import ConfigError, PolicyError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.job.catalog import load_job

MOST_VERTICES = 256
VARIANCE_EPS = 1e-8
"""Constant that VecNormalize adds to variances."""


class Told(NamedTuple):
    """A user's statements about a model, where its file is silent or wrong."""

    masked: bool | None = None
    activation: str | None = None
    normalisation: Path | None = None
    """An `.npz` with `mean` and `var` of the observation, as VecNormalize keeps them."""


def import_model(
    model: Path, config: ExperimentConfig, target: Path, told: Told | None = None
) -> Path:
    """Write the policy folder of a model that Stable-Baselines3 or torch saved.

    Args:
        model: The file.
        config: The experiment whose environment the model was trained in.
        target: The folder.
        told: The user's statements about the model.

    Returns:
        The folder.

    Raises:
        PolicyError: The file cannot be read as arrays, has other parts than plain layers, or other
            spaces than the environment.
        ConfigError: A statement of the user is wrong.
    """
    told = told or Told()
    found = read_model(model)
    plain = plain_layers(found.state, model)
    activation = told.activation or found.activation or plain.activation
    shape = foreign_shape(plain, activation, model)
    _refuse_other_env(shape, config, model)
    masked = found.algorithm == "maskable-ppo" if told.masked is None else told.masked
    document = network_document(
        config, shape, algorithm=found.algorithm or "imported", masked=masked, steps=found.steps
    )
    weights = foreign_weights(plain, shape, _normalisation(told.normalisation, shape))
    # The figure of the training is unknown: `dsp-gym evaluate` has to measure it.
    card = (
        f"# {config.name}\n\nImported from `{model.name}`, trained outside of dsp-gym; its figures "
        "on the validation loads are unknown.\n`dsp-gym evaluate` gives figures on unseen loads.\n"
    )
    return write_folder(target, document, weights, config_text(config), card)


def foreign_shape(plain: PlainLayers, activation: str, file: str | Path) -> NetworkShape:
    """Infer the shape of a network of plain layers from its numbers of inputs and outputs.

    Returns:
        The shape, for moves of vertices, single moves or capacity actions.

    Raises:
        PolicyError: No environment has as many observed numbers and as many choices.
    """
    inputs, outputs = plain.inputs, int(plain.layers[-1][0].shape[0])
    hidden = tuple(weight.shape[0] for weight, _ in plain.layers[:-1])
    common: dict[str, object] = {"encoder": "mlp", "hidden": hidden, "activation": activation}
    common |= {"whole": True, "lstm": None if plain.lstm is None else plain.lstm.hidden.shape[1]}

    def answers(choices: int) -> bool:
        return outputs % choices == 0 if plain.quantiles else outputs == choices

    if inputs == len(CAPACITY_FEATURES) and answers(CHOICES):
        facts: dict[str, object] = {"vertices": 0, "vertex_features": 0, "job_features": inputs}
        return _shape({**common, **facts, "choices": CHOICES}, file)
    for v in range(1, MOST_VERTICES):
        if ObservationLayout(v).size != inputs:
            continue
        for choices, single in ((v * LOGITS, False), (choices_of(v), True)):
            if answers(choices):
                facts = {"vertices": v, "vertex_features": FV, "job_features": FJ}
                return _shape({**common, **facts, "single": single}, file)
    example = 3
    raise PolicyError(
        f"the network reads {inputs} numbers and answers with {outputs}, as in no environment",
        file=file,
        remedy=f"A job of {example} vertices shows {ObservationLayout(example).size} and takes "
        f"{example * LOGITS} (moves of all vertices) or {choices_of(example)} (SingleMove); with "
        f"capacity actions it is {len(CAPACITY_FEATURES)} and {CHOICES}. Frames are not stacked.",
    )


def _shape(facts: dict[str, object], file: str | Path) -> NetworkShape:
    try:
        return NetworkShape.model_validate(facts)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        raise PolicyError(
            f"the network has a shape that a policy folder cannot hold: {found['msg']}",
            file=file,
            key=".".join(map(str, found["loc"])),
            value=found["input"],
            remedy="1 to 4 hidden layers of at most 1,024, tanh or relu between them.",
        ) from None


def foreign_weights(
    plain: PlainLayers, shape: NetworkShape, normalisation: tuple[Floats32, Floats32] | None = None
) -> Weights:
    """Rename the layers for NumPy inference.

    Args:
        plain: The layers.
        shape: Shape of the network.
        normalisation: Shift and scale of the observation, (size,) each; None: no normalisation.

    Returns:
        Weights by name; those of quantiles are averaged over each choice.
    """
    size = shape.observation_size
    shift, scale = normalisation or (np.zeros(size, np.float32), np.ones(size, np.float32))
    weights = {"observation_shift": shift, "observation_scale": scale}
    if plain.lstm is not None:
        weights |= {
            "lstm_seen.weight": plain.lstm.seen,
            "lstm_seen.bias": plain.lstm.seen_bias,
            "lstm_hidden.weight": plain.lstm.hidden,
            "lstm_hidden.bias": plain.lstm.hidden_bias,
        }
    *hidden, (last, bias) = plain.layers
    for k, (weight, offset) in enumerate(hidden):
        weights |= {f"actor.{k}.weight": weight, f"actor.{k}.bias": offset}
    if plain.quantiles:  # reshaped to (quantiles, choices), choices vary fastest
        last = last.reshape(-1, shape.logits, last.shape[1]).mean(axis=0)
        bias = bias.reshape(-1, shape.logits).mean(axis=0)
    return weights | {"actor_out.weight": last, "actor_out.bias": bias}


def network_document(
    config: ExperimentConfig, shape: NetworkShape, *, algorithm: str, masked: bool, steps: int
) -> PolicyDocument:
    """Describe a network that was trained in an experiment's environment.

    Returns:
        The document; figures of validation and ranges of observations are unknown and left empty.
    """
    env, of_job = config.env, shape.choices is not None
    price = env.reward.slo
    return PolicyDocument(
        schema=SCHEMA,
        name=config.name,
        algorithm=algorithm,
        network=shape,
        observation=ObservationDocument(
            vertex_features=() if of_job else tuple(VERTEX_FEATURES),
            job_features=tuple(CAPACITY_FEATURES if of_job else JOB_FEATURES),
            quantiles={},
        ),
        action=ActionDocument(
            space="capacity",
            kappas=KAPPAS,
            late_price=price or None,
            late_prices=env.randomise.late_price or (price, price),
            sizing=env.capacity,
            masked=masked,
        )
        if of_job
        else ActionDocument(
            space="single" if shape.single else "vertex",
            moves=MOVE_NAMES,
            memory_moves=MEMORY_NAMES,
            masked=masked,
        ),
        interval_s=env.interval_s,
        ds2_utilization=env.ds2_utilization,
        jobs=job_hashes(config),
        data=data_hashes(config),
        seed=0,
        seeds=(0,),
        steps=steps,
        validation={},
        versions={"dsp-gym": __version__},
        weights_sha256="",
    )


def _refuse_other_env(shape: NetworkShape, config: ExperimentConfig, file: Path) -> None:
    """Refuse a network whose inputs and outputs do not fit the experiment's environment.

    Raises:
        PolicyError: The kind of action or the number of vertices differs.
    """
    of_job = shape.choices is not None
    if of_job != (config.env.action == "capacity"):
        raise PolicyError(
            f"the network decides on {'the capacity of the job' if of_job else 'vertices'}, the "
            f"environment of '{config.name}' on {'vertices' if of_job else 'capacities'}",
            file=file,
            remedy="Name the experiment it was trained in, or --action.",
        )
    most = max(len(load_job(job).vertices) for job in config.jobs)
    if not of_job and most != shape.vertices:
        raise PolicyError(
            f"the network is one for {shape.vertices} vertices, and the largest job of "
            f"'{config.name}' has {most}",
            file=file,
            remedy="Name the experiment or the job it was trained on.",
        )


def _normalisation(file: Path | None, shape: NetworkShape) -> tuple[Floats32, Floats32] | None:
    """Read the observation's mean and variance in training, as shift and scale.

    Returns:
        (size,) shift and (size,) scale; None without a file.

    Raises:
        ConfigError: The file does not hold the two arrays, or they have another size.
    """
    if file is None:
        return None
    try:
        with np.load(file, allow_pickle=False) as held:
            mean, var = (np.asarray(held[key], np.float64) for key in ("mean", "var"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"holds no arrays 'mean' and 'var' ({error})",
            file=file,
            remedy="Write it with numpy.savez(FILE, mean=env.obs_rms.mean, var=env.obs_rms.var).",
        ) from None
    size = shape.observation_size
    finite = bool(np.isfinite(mean).all() and np.isfinite(var).all() and (var >= 0).all())
    if mean.shape != (size,) or var.shape != (size,) or not finite:
        raise ConfigError(
            f"'mean' and 'var' are not {size} numbers each, as the network reads",
            file=file,
            value=[list(mean.shape), list(var.shape)],
        )
    return mean.astype(np.float32), (1 / np.sqrt(var + VARIANCE_EPS)).astype(np.float32)
