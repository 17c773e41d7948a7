"""The job: a graph of vertices, what a configuration of it can carry, and what it costs."""
