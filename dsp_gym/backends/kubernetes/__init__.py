"""The Kubernetes port: resources of the Flink Kubernetes Operator, watched, and leased for acting.

The client is imported in `api` alone, and when a connection is made.
"""

from __future__ import annotations
