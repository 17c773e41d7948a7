"""A job the loop can watch and scale: simulated, replayed, on a Flink cluster, on Kubernetes."""
