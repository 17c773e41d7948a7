"""The service model: the load a job carries in each configuration, learned while it runs.

`arrivals` measures the load of the last minute, `filter` and `service` learn the time per record,
`prior` reads job files, `frontier` finds the cheapest configuration for every load, `lateness`
estimates how late a load will be, `warming` learns the cost of a restart beside its outage.
"""

from dsp_gym.sizing.arrivals import Arrivals
from dsp_gym.sizing.frontier import Frontiers
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import ServiceModel, SizingConfig
from dsp_gym.sizing.warming import Warming

__all__ = ["Arrivals", "Frontiers", "Prior", "ServiceModel", "SizingConfig", "Warming"]
