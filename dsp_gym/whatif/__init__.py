"""What policies would have saved on the history of jobs, predicted by models fitted to it."""
