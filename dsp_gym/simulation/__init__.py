"""A fluid model of Flink jobs, batched: one kernel for one job and for thousands."""
