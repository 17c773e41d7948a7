"""Training: what an experiment is, where trainings are kept, and the search for parameters."""
