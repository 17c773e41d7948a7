"""Servers that are asked, Flink, Prometheus, API servers, MLflow: each question has a deadline."""
