"""A real Flink on this machine: its processes, its REST interface, and what is submitted to it."""
