"""Daedalus: one count of workers for the job, from a model of capacity and a forecast.

Pfister, Scheinert, Geldenhuys and Kao, "Daedalus: Self-Adaptive Horizontal Autoscaling for Resource
Efficiency of Distributed Stream Processing Systems", arXiv 2403.02093, 2024. The constants are
those of the public repository, dos-group/daedalus; the rules are written from paper and repository,
without its code. A snapshot has other metrics than theirs, which `policy` and the page on policies
list with what stands in for them.
"""

from __future__ import annotations

from baselines.daedalus.policy import Daedalus, DaedalusConfig

__all__ = ["Daedalus", "DaedalusConfig"]
