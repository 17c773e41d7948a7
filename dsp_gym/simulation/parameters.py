"""The kernel's numbers: simulation options as one array, by column."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.simulation.options import SAMPLE_S, SimulationOptions

# columns of the kernel's numeric options
(
    P_SERVICE_CV,
    P_MEASURE_CV,
    P_MISSING,
    P_FAIL,
    P_RECOVERY,
    P_SLOW,
    P_SLOW_FACTOR,
    P_SLOW_S,
    P_GAP,
    P_GAP_S,
    P_FAILED_RESCALE,
    P_WARM_UP,
    P_RESCALE_ON,
    P_GAUGE,
) = range(14)


def parameters(options: SimulationOptions) -> Floats:
    """The kernel's numbers, in its order."""
    on, faults = options.mechanisms, options.faults
    return np.array(
        [
            options.service_cv if on.service_noise else 0.0,
            options.measurement.noise_cv,
            options.measurement.missing_probability,
            faults.failures_per_hour,
            faults.recovery_s,
            faults.slow_nodes_per_hour,
            faults.slow_factor,
            faults.slow_s,
            faults.metric_gaps_per_hour,
            faults.gap_s,
            faults.failed_rescale_probability,
            float(on.warm_up and on.cache),
            float(on.rescale),
            float(options.measurement.gauge_s // SAMPLE_S),
        ]
    )
