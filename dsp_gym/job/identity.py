"""Which job a dataset, a policy or a result is of, in a hash that outlives releases."""

from __future__ import annotations

import hashlib

from dsp_gym.job.spec import JobSpec

__all__ = ["job_hash"]


def job_hash(spec: JobSpec) -> str:
    """Hash of everything a job file says but the evidence of its fit.

    The module that fitted a shipped job has moved to the studies; the hash names it as the first
    release did, so that datasets, policies and results of that release stay those of the same job.

    Returns:
        16 hexadecimal digits.
    """
    first = spec.behaviour_json().replace("python -m dsp_gym.studies.", "python -m dsp_gym.")
    return hashlib.sha256(first.encode()).hexdigest()[:16]
