"""ContTune: Big-small tuning with a conservative Gaussian process per vertex.

Lian et al., "ContTune: Continuous Tuning by Conservative Bayesian Optimization for Distributed
Stream Data Processing Systems", VLDB 2023, arXiv 2309.12239. The constants are those of the
public repository, ljqcodelove/ContTune; the rules are written from paper and repository, without
its code. The page on policies lists what was not published.
"""

from __future__ import annotations

from baselines.conttune.policy import ContTune, ContTuneConfig

__all__ = ["ContTune", "ContTuneConfig"]
