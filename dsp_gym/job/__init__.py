"""The job: a graph of vertices, the load its configurations carry, and their cost."""
