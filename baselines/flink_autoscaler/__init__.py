"""The autoscaler of the Flink Kubernetes Operator (FLIP-271), release 1.15.0.

Rules and terms are those of Apache Flink's `flink-autoscaler` module (Apache-2.0), reimplemented: a
collector with its metrics window, an evaluator, a scaler per vertex, a gate for the job, and memory
tuning. Differences of its main branch are switches.
"""

from __future__ import annotations

from baselines.flink_autoscaler.policy import FlinkAutoscaler, FlinkAutoscalerConfig

__all__ = ["FlinkAutoscaler", "FlinkAutoscalerConfig"]
