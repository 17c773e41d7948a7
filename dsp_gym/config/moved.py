"""Modules of earlier releases and where they are now, for code of others that imports them.

A module that an earlier release documented, as a command or to be imported, has a file at its old
place, which raises what `refusal` returns and has nothing else. Nothing works under two names.
"""

from __future__ import annotations

__all__ = ["MOVED", "new_name", "refusal"]

MOVED = {
    "agents.bench": "agents.studies.bench",
    "agents.claim": "agents.studies.claim",
    "agents.dataset_claim": "agents.studies.dataset_claim",
    "agents.learning_curve": "agents.studies.learning_curve",
    "baselines.flink_autoscaler.facts": "baselines.studies.autoscaler_facts",
    "baselines.flink_autoscaler.facts_memory": "baselines.studies.autoscaler_memory_facts",
    "dsp_gym.actuators": "dsp_gym.backends.flink.rescale",
    "dsp_gym.actuators.kubernetes": "dsp_gym.backends.kubernetes.actuator",
    "dsp_gym.bench": "dsp_gym.studies.bench",
    "dsp_gym.calibration.flink_runs": "dsp_gym.studies.validation.flink_runs",
    "dsp_gym.calibration.replay": "dsp_gym.studies.reproduce.replay",
    "dsp_gym.collectors": "dsp_gym.backends.flink",
    "dsp_gym.collectors.job": "dsp_gym.backends.flink.job",
    "dsp_gym.collectors.kubernetes": "dsp_gym.backends.kubernetes.collector",
    "dsp_gym.collectors.live": "dsp_gym.backends.flink.collector",
    "dsp_gym.collectors.prometheus": "dsp_gym.backends.flink.prometheus",
    "dsp_gym.collectors.rest": "dsp_gym.backends.flink.rest_samples",
    "dsp_gym.collectors.source": "dsp_gym.backends.flink.source",
    "dsp_gym.counterfactual": "dsp_gym.evaluation.counterfactual",
    "dsp_gym.counterfactual.scorecard": "dsp_gym.evaluation.counterfactual.evaluation",
    "dsp_gym.envs.sizing": "dsp_gym.job.sizing",
    "dsp_gym.experiment": "dsp_gym.evaluation.experiment",
    "dsp_gym.fitting": "dsp_gym.studies.fitting",
    "dsp_gym.flink": "dsp_gym.backends.flink",
    "dsp_gym.flink.cluster": "dsp_gym.backends.flink.local.cluster",
    "dsp_gym.flink.distribution": "dsp_gym.backends.flink.local.distribution",
    "dsp_gym.flink.jar": "dsp_gym.backends.flink.local.jar",
    "dsp_gym.flink.launch": "dsp_gym.backends.flink.local.launch",
    "dsp_gym.flink.processes": "dsp_gym.backends.flink.local.processes",
    "dsp_gym.flink.prometheus_server": "dsp_gym.backends.flink.local.prometheus_server",
    "dsp_gym.flink.settings": "dsp_gym.backends.flink.local.settings",
    "dsp_gym.flink.state": "dsp_gym.backends.flink.local.state",
    "dsp_gym.kubernetes": "dsp_gym.backends.kubernetes",
    "dsp_gym.live": "dsp_gym.control",
    "dsp_gym.live.connection": "dsp_gym.backends.flink.connection",
    "dsp_gym.live.jobs": "dsp_gym.backends.flink.backend",
    "dsp_gym.live.kubernetes": "dsp_gym.backends.kubernetes.connection",
    "dsp_gym.live.limits": "dsp_gym.backends.flink.slots",
    "dsp_gym.live.record": "dsp_gym.backends.flink.recording.record",
    "dsp_gym.live.record_plan": "dsp_gym.backends.flink.recording.plan",
    "dsp_gym.live.recorder": "dsp_gym.backends.flink.recording.recorder",
    "dsp_gym.live.silence": "dsp_gym.backends.flink.silence",
    "dsp_gym.loop.control": "dsp_gym.control.loop",
    "dsp_gym.loop.journal": "dsp_gym.records.journal",
    "dsp_gym.recordings": "dsp_gym.records",
    "dsp_gym.recordings.replay": "dsp_gym.backends.replay.jobs",
    "dsp_gym.reproduce": "dsp_gym.studies.reproduce",
    "dsp_gym.reproduce.flink_autoscaler": "baselines.studies.autoscaler_checks",
    "dsp_gym.rollouts": "dsp_gym.datasets.rollouts",
    "dsp_gym.shadow": "dsp_gym.control.serve",
    "dsp_gym.simulation.recorded": "dsp_gym.backends.simulated.recording",
    "dsp_gym.simulation.simulated": "dsp_gym.backends.simulated.jobs",
    "dsp_gym.tuning": "dsp_gym.evaluation.tuning",
    "dsp_gym.validation": "dsp_gym.studies.validation",
    "spark_pipelines.bench": "spark_pipelines.studies.bench",
    "spark_pipelines.scale": "spark_pipelines.studies.scale",
}
"""New name of each module or package; modules of a package moved with it, unless named here too."""


def new_name(module: str) -> str | None:
    """Find where a module of an earlier release is now.

    Args:
        module: its dotted name then.

    Returns:
        Its dotted name now; None where it has not moved.

    >>> new_name("dsp_gym.live.seat")
    'dsp_gym.control.seat'
    """
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        package = MOVED.get(".".join(parts[:length]))
        if package is not None:
            return ".".join([package, *parts[length:]])
    return None


def refusal(module: str, run_as: str) -> BaseException:
    """What a module that has moved raises.

    Args:
        module: its dotted name in the earlier release.
        run_as: its `__name__` now; `__main__` where it is run as a command.

    Returns:
        An error that names the new place, to be raised: an end with a message for a command, a
        failed import for code.

    >>> print(refusal("agents.claim", "agents.claim"))
    'agents.claim' is now 'agents.studies.claim'
    """
    new = new_name(module)
    if run_as == "__main__":
        return SystemExit(f"python -m {module} is now: python -m {new}")
    apart = [
        f"'{old}' is now '{place}'"
        for old, place in MOVED.items()
        if old.startswith(f"{module}.") and place != f"{new}{old.removeprefix(module)}"
    ]
    said = "; ".join([f"'{module}' is now '{new}'", *apart])
    return ModuleNotFoundError(said, name=module)
