"""From a running job to a job file: what Flink, Kubernetes and Prometheus say of it."""
