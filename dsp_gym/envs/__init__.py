"""The job as a Gymnasium environment: observation, action, reward, and a batch of jobs."""
