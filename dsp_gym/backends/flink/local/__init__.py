"""A Flink and a Prometheus on this machine: their files, settings and processes."""
