"""The service model: what a job carries in each configuration, learned while it is watched.

`arrivals` measures the load of the last minute, `service` learns how long a record takes,
`frontier` answers with the cheapest configuration for every load, `lateness` says how late a load
will be, `warming` learns what a restart costs beside its outage.
"""

from dsp_gym.sizing.arrivals import Arrivals
from dsp_gym.sizing.frontier import Frontiers
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import ServiceModel, SizingConfig
from dsp_gym.sizing.warming import Warming

__all__ = ["Arrivals", "Frontiers", "Prior", "ServiceModel", "SizingConfig", "Warming"]
