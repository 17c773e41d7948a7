"""Snapshots of real jobs: a job's state from Flink, its samples from Prometheus or Flink itself."""
