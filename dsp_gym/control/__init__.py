"""Real jobs in the loop: watched, scaled and recorded."""
