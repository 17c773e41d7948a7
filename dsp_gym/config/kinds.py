"""Which model reads which folder of `configs/`.

The models stand beside the code they configure, above this package, so they are named here and
resolved when a file of their kind is read.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError, did_you_mean

__all__ = ["KINDS", "kind_of", "model_of"]

KINDS: dict[str, str] = {
    "jobs": "dsp_gym.job.spec:JobSpec",
    "loads": "dsp_gym.loads.spec:LoadConfig",
    "policies": "dsp_gym.policies.config:PolicyConfig",
    "guardrails": "dsp_gym.guardrails.config:GuardrailsConfig",
    "experiments": "dsp_gym.evaluation.experiment:ExperimentConfig",
    "benchmarks": "dsp_gym.evaluation.config:BenchmarkConfig",
    "frontiers": "dsp_gym.evaluation.frontier.config:FrontierConfig",
    "calibrations": "dsp_gym.calibration.config:CalibrationConfig",
    "shadow": "dsp_gym.control.config:RunConfig",
    "validations": "dsp_gym.evaluation.validation.config:ValidationConfig",
    "recordings": "dsp_gym.backends.flink.recording.plan:RecordConfig",
    "datasets": "spark_pipelines.config:DatasetConfig",
    "rollouts": "dsp_gym.datasets.rollouts.config:RolloutConfig",
}


def model_of(kind: str) -> type[ConfigModel]:
    """The model that reads files of this kind.

    Returns:
        The class, imported on demand.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind '{kind}'", remedy=did_you_mean(kind, KINDS))
    module, _, name = KINDS[kind].partition(":")
    model: type[ConfigModel] = getattr(importlib.import_module(module), name)
    return model


def kind_of(file: Path) -> str:
    """The kind of a file: the nearest folder above it that is named like one.

    Returns:
        The name of the kind, such as `jobs`.
    """
    for folder in reversed(file.absolute().parent.parts):
        if folder in KINDS:
            return folder
    if not file.exists():
        raise ConfigError("there is no such file", file=file)
    raise ConfigError(
        f"its kind is unknown: no folder above it is named {', '.join(KINDS)}",
        file=file,
        remedy="Name the kind: dsp-gym config check FILE --kind KIND",
    )
