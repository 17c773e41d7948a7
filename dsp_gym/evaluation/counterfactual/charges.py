"""The policies of a run, each in charge of the model as it would be of the job."""

from __future__ import annotations

from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.control.start import guardrails_of, job_of, seat_names
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.counterfactual.course import ObservedRun
from dsp_gym.evaluation.counterfactual.forward import Charge, IncumbentReplay
from dsp_gym.evaluation.counterfactual.rescales import observed_outages_s, with_observed_outages
from dsp_gym.guardrails.chain import build_for
from dsp_gym.job.spec import JobSpec
from dsp_gym.policies.capabilities import without_reasons
from dsp_gym.policies.registry import make

__all__ = ["charge_of", "configuration_of", "model_of", "watched"]


def configuration_of(course: ObservedRun, journal: object) -> RunConfig:
    """The configuration that a journal holds.

    Returns:
        The run's configuration.

    Raises:
        ConfigError: It holds none.
    """
    from dsp_gym.config.files import parse

    if course.configuration is None:
        raise ConfigError(
            "does not hold the configuration of its run",
            file=str(journal),
            remedy="Name it: --config FILE",
        )
    return parse(RunConfig, dict(course.configuration), str(journal))


def model_of(config: RunConfig, course: ObservedRun, journal: object) -> JobSpec:
    """The job's model, with rescales that take as long as the observed ones.

    Returns:
        The job.

    Raises:
        ConfigError: The model is of another job than the journal, or its prices are in another
            currency.
    """
    spec = with_observed_outages(job_of(config), course)
    if {v.name for v in spec.vertices} != set(course.vertices):
        raise ConfigError(
            f"job '{spec.job}' has {', '.join(v.name for v in spec.vertices)}; the journal is of "
            f"a job with {', '.join(course.vertices)}",
            key="job",
            value=config.job,
            remedy="Name the configuration that the journal was written with: --config FILE",
        )
    _refuse_currencies(course, spec, journal)
    return spec


def _refuse_currencies(course: ObservedRun, spec: JobSpec, journal: object) -> None:
    """What was paid and what is predicted are compared, so they are in one currency."""
    wrong = [found for found in course.currencies if found != spec.prices.currency]
    if wrong:
        raise ConfigError(
            f"the journal's costs are in {wrong[0]}, the prices of job '{spec.job}' in "
            f"{spec.prices.currency}; costs in two currencies are not compared",
            file=str(journal),
            key="prices.currency",
            remedy="Name a configuration whose job file has the journal's prices: --config FILE",
        )


def watched(config: RunConfig) -> list[str]:
    """The policies that are compared with the incumbent.

    Returns:
        Their names, in order.
    """
    return [name for name in seat_names(config) if name != INCUMBENT]


def charge_of(
    name: str, spec: JobSpec, config: RunConfig, course: ObservedRun, part: slice
) -> Charge:
    """A policy of a run, made anew, or the incumbent, which follows what was deployed.

    Returns:
        The policy and its guardrails.
    """
    if name == INCUMBENT:
        return Charge(IncumbentReplay(course, part, observed_outages_s(course, spec)))
    seat = next(s for n, s in zip(seat_names(config), config.seats, strict=True) if n == name)
    policy = without_reasons(make(seat.policy))
    return Charge(policy, build_for(policy, guardrails_of(config, seat)))
