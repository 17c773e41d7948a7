"""A policy's effect on a job, predicted from a journal and the job's calibrated model."""
