"""DS2 and Dhalion for jobs that Flink's reactive mode scales as one.

In reactive mode a job takes all slots there are: the number of TaskManagers is the parallelism of
every vertex. These two policies are the rules with which the authors of a comparison of autoscalers
ran DS2 and Dhalion that way on Nexmark (github.com/delftdata/espa-autoscaling at commit 2290fa6:
`ds2/ds2_standard_reactive.py`, `ds2/ds2_lag_reactive.py`, `dhalion/dhalionLogicV2.py`), written
anew from their parameters.
"""

from baselines.reactive.dhalion import DhalionReactive
from baselines.reactive.ds2 import Ds2Reactive

__all__ = ["DhalionReactive", "Ds2Reactive"]
