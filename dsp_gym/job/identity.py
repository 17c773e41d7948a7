"""A hash of a job, for datasets, policies and results, that outlives releases."""

from __future__ import annotations

import hashlib

from dsp_gym.job.spec import JobSpec

__all__ = ["job_hash"]


def job_hash(spec: JobSpec) -> str:
    """Hash all of a job file but the evidence of its fit.

    The module that fitted a shipped job has moved to the studies; the hash uses its first name, so
    that existing datasets, policies and results still belong to the same job.

    Returns:
        16 hexadecimal digits.
    """
    first = spec.behaviour_json().replace("python -m dsp_gym.studies.", "python -m dsp_gym.")
    return hashlib.sha256(first.encode()).hexdigest()[:16]
