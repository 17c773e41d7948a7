"""What a policy would have done to a job, told from a journal and the job's calibrated model."""
