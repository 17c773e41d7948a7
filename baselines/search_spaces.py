"""The tunable parameters of the published policies, and their ranges.

Metrics windows, control periods and the deployment (quotas, key groups) stay as published: tuning
changes thresholds, head-room and patience.
"""

from __future__ import annotations

from baselines.justin import justin_ds2
from dsp_gym.experiments.tuning.space import Pick
from dsp_gym.policies.config import with_params

Params = dict[str, object]
"""`params` of a policy, as its configuration file holds them."""


def ds2(pick: Pick) -> Params:
    """Pick target, band and patience; the band as shares of the target and the room above.

    Returns:
        Parameters of the policy `ds2`, by name.
    """
    target = pick.real("target_utilization", 0.1, 1.0, physical="high")
    params: Params = {
        "target_utilization": target,
        # Shares keep the band around the target, whichever target is picked.
        "activation": pick.whole("activation", 1, 40, log=True, physical="low"),
        "min_down": pick.whole("min_down", 1, 60, log=True, physical="low"),
        "restart_s": pick.one("restart_s", [0.0, 30.0, 60.0, 120.0, 300.0], physical="low"),
    }
    if pick.one("banded", [False, True]):
        low = target * pick.real("band_low_share", 0.0, 1.0, physical="both")
        high = target + (1 - target) * pick.real("band_high_share", 0.0, 1.0, physical="both")
        params["utilization_band"] = [min(round(low, 4), target), max(round(high, 4), target)]
        params["keep_inside_band"] = pick.one("keep_inside_band", [False, True])
    else:
        params["utilization_band"] = None
        params["keep_inside_band"] = False
    return params


def justin_paper(pick: Pick) -> Params:
    """Pick the DS2 inside and the thresholds of Algorithm 1.

    Returns:
        Parameters of Justin as published, those of its DS2 under `ds2`.
    """
    return {
        "ds2": _justin_ds2(pick),
        "hit_rate_threshold": pick.real("hit_rate_threshold", 0.5, 0.99),
        "latency_threshold_ms": pick.real("latency_threshold_ms", 0.01, 5.0, log=True),
        "max_level": pick.whole("max_level", 2, 3),
        "min_improvement": pick.real("min_improvement", 0.0, 0.2),
    }


def justin_artifact(pick: Pick) -> Params:
    """Pick the DS2 inside and the thresholds of the released code.

    Returns:
        Parameters of Justin as released, those of its DS2 under `ds2`.
    """
    threshold = pick.real("hit_rate_threshold", 0.0, 1.0, physical="both")
    enough = pick.real("hit_rate_enough_share", 0.0, 1.0, physical="both")
    return {
        "ds2": _justin_ds2(pick),
        "hit_rate_threshold": threshold,
        # At least the threshold, as the released code has it.
        "hit_rate_enough": round(threshold + (1 - threshold) * enough, 4),
        "hit_rate_gain": pick.real("hit_rate_gain", 0.0, 0.5, physical="low"),
        "throughput_gain": pick.real("throughput_gain", 0.0, 0.5, physical="low"),
    }


def _justin_ds2(pick: Pick) -> Params:
    """Return Justin's settings, overridden by the picks of `ds2`."""
    return with_params(justin_ds2().model_dump(mode="json", exclude_defaults=True), ds2(pick))


def hpa_cpu(pick: Pick) -> Params:
    """Pick target, tolerance and stabilisation of a HorizontalPodAutoscaler.

    Returns:
        Parameters of the policy, those of the stabilisation under `behavior`.
    """
    return {
        "target_utilization": pick.real("target_utilization", 0.3, 1.0),
        "tolerance": pick.real("tolerance", 0.0, 0.4),
        "per_vertex": pick.one("per_vertex", [True, False]),
        "behavior": _behavior(pick),
    }


def hpa_varga(pick: Pick) -> Params:
    """Pick targets of both metrics, and the number of records of lag that count.

    Returns:
        Parameters of the policy, those of the stabilisation under `behavior`.
    """
    return {
        "utilization_target": pick.real("utilization_target", 0.3, 1.0),
        "lag_target": pick.real("lag_target", 0.5, 1.0),
        "lag_threshold_records": pick.real("lag_threshold_records", 1e3, 1e6, log=True),
        "threshold_per_replica": pick.one("threshold_per_replica", [False, True]),
        "counts_sources": pick.one("counts_sources", [False, True]),
        "rest_s": pick.one("rest_s", [0.0, 60.0, 120.0]),
        "tolerance": pick.real("tolerance", 0.0, 0.4),
        "per_vertex": pick.one("per_vertex", [False, True]),
        "behavior": _behavior(pick),
    }


def keda(pick: Pick) -> Params:
    """Pick records of lag per replica, and patience.

    Returns:
        Parameters of the policy, those of the stabilisation under `behavior`.
    """
    return {
        "lag_threshold_records": pick.real("lag_threshold_records", 10, 1e7, log=True),
        "allow_idle_consumers": pick.one("allow_idle_consumers", [False, True]),
        "tolerance": pick.real("tolerance", 0.0, 0.4),
        "cooldown_s": pick.one("cooldown_s", [300.0, 1800.0, 7200.0]),
        "behavior": _behavior(pick),
    }


def aws_managed_flink(pick: Pick) -> Params:
    """Pick CPU loads and patience; the lower load as a share of the higher one.

    Returns:
        Parameters of the policy `aws-managed-flink`, by name.
    """
    high = pick.real("scale_up_cpu", 0.4, 0.95)
    return {
        "scale_up_cpu": high,
        "scale_up_s": pick.one("scale_up_s", [60.0, 300.0, 900.0]),
        # Half the tasks have twice the load, which must not double them again.
        "scale_down_cpu": round(high * pick.real("scale_down_share", 0.05, 0.45), 4),
        "scale_down_s": pick.one("scale_down_s", [900.0, 3600.0, 21_600.0]),
    }


def dataflow(pick: Pick) -> Params:
    """Pick target or hint, and the backlog that counts, lasts and is cleared.

    Returns:
        Parameters of the policy `dataflow`, by name.
    """
    aim = "worker_utilization_hint" if pick.one("hinted", [False, True]) else "target_cpu"
    return {
        aim: pick.real("target_cpu", 0.3, 0.9),
        "backlog_s": pick.real("backlog_s", 1.0, 60.0, log=True),
        "lasting_s": pick.one("lasting_s", [60.0, 120.0, 300.0]),
        "clear_s": pick.real("clear_s", 30.0, 900.0, log=True),
    }


def beam_flink(pick: Pick) -> Params:
    """Pick CPU loads, the backlog that counts and is cleared, and the rest.

    Returns:
        Parameters of the policy `beam-flink`, by name.
    """
    return {
        "backlog_s": pick.real("backlog_s", 10.0, 300.0, log=True),
        "high_cpu": pick.real("high_cpu", 0.8, 1.0),
        "clear_s": pick.real("clear_s", 30.0, 900.0, log=True),
        "low_cpu": pick.real("low_cpu", 0.3, 0.8),
        "caught_up_s": pick.real("caught_up_s", 1.0, 10.0, log=True),
        "wanted_cpu": pick.real("wanted_cpu", 0.3, 0.8),
        "rest_s": pick.one("rest_s", [60.0, 120.0, 300.0]),
    }


def _behavior(pick: Pick) -> Params:
    up = pick.one("scale_up.stabilization_window_s", [0.0, 60.0, 180.0])
    down = pick.one("scale_down.stabilization_window_s", [60.0, 300.0, 900.0, 1800.0, 3600.0])
    return {
        "scale_up": {"stabilization_window_s": up},
        "scale_down": {"stabilization_window_s": down},
    }


def dhalion(pick: Pick) -> Params:
    """Pick thresholds of a symptom, and sizes of the steps.

    A step down leaves the other tasks without backpressure.

    Returns:
        Parameters of the policy `dhalion`, by name.
    """
    noise = pick.real("noise_ms_per_s", 5.0, 200.0, log=True)
    idle = pick.real("idle_ms_per_s", 300.0, 950.0)
    # The largest step down after which busy time stays below the symptom (see DhalionConfig).
    most = 1 - (1 - idle / 1000) / (1 - noise / 1000)
    return {
        "wait_s": pick.one("wait_s", [60.0, 180.0, 600.0]),
        "noise_ms_per_s": noise,
        "max_growth": pick.real("max_growth", 0.5, 8.0, log=True),
        "idle_ms_per_s": idle,
        "scale_down_share": round(most * pick.real("scale_down_boldness", 0.1, 0.95), 4),
    }


def dhalion_reactive(pick: Pick) -> Params:
    """Pick the latency that calls for workers, their head-room, and what frees them.

    Returns:
        Parameters of the policy `dhalion-reactive`, by name.
    """
    return {
        "rest_s": pick.one("rest_s", [60.0, 120.0, 240.0, 600.0]),
        "latency_s": pick.real("latency_s", 0.5, 20.0, log=True),
        "over_provisioning": pick.real("over_provisioning", 0.0, 1.0),
        "backpressure_ms_per_s": pick.real("backpressure_ms_per_s", 20.0, 500.0, log=True),
        "lag_s": pick.real("lag_s", 0.05, 5.0, log=True),
        "low_cpu": pick.real("low_cpu", 0.3, 0.9),
        "scale_down_share": pick.real("scale_down_share", 0.05, 0.5),
    }


def ds2_reactive(pick: Pick) -> Params:
    """Pick head-room, rest, and the latencies between which the job keeps its workers.

    Returns:
        Parameters of the policy `ds2-reactive`, by name.
    """
    params: Params = {
        "rest_s": pick.one("rest_s", [60.0, 120.0, 240.0, 600.0]),
        "over_provisioning": pick.real("over_provisioning", 0.0, 1.5),
        "up_latency_s": None,
        "down_latency_s": None,
    }
    if pick.one("gated", [False, True]):
        up = pick.real("up_latency_s", 0.5, 20.0, log=True)
        params["up_latency_s"] = up
        params["down_latency_s"] = up * pick.real("down_latency_share", 0.05, 1.0)
    return params


def flink_autoscaler(pick: Pick) -> Params:
    """Pick target and bounds of utilisation, waits and expected restart, by the operator's keys.

    Returns:
        Parameters of the policy; times are texts such as "5 min", as the operator reads them.
    """
    target = pick.real("utilization.target", 0.2, 1.0, physical="high")
    low = target * pick.real("utilization.min_share", 0.0, 1.0, physical="both")
    high = target + (1 - target) * pick.real("utilization.max_share", 0.0, 1.0, physical="both")
    minutes = {
        "stabilization.interval": _minutes(pick, "stabilization.interval", [0, 1, 3, 5, 15]),
        # A rate takes two samples, a minute apart.
        "metrics.window": _minutes(pick, "metrics.window", [2, 5, 10, 15, 30]),
        "scale-down.interval": _minutes(
            pick, "scale-down.interval", [0, 10, 30, 60, 180, 720, 1440]
        ),
        "catch-up.duration": _minutes(
            pick, "catch-up.duration", [2, 5, 15, 30, 60, 180, 720, 1440]
        ),
        "restart.time": _minutes(pick, "restart.time", [0, 1, 2, 5, 15, 30, 60]),
    }
    keys = {
        "utilization.target": target,
        "utilization.min": min(round(low, 4), target),
        "utilization.max": max(round(high, 4), target),
        **{key: f"{value} min" for key, value in minutes.items()},
    }
    return {"flink_configuration": {f"job.autoscaler.{key}": v for key, v in keys.items()}}


def _minutes(pick: Pick, name: str, values: list[int]) -> int:
    """Pick whole minutes, of which the least is physical: no wait, or the shortest window."""
    return pick.one(name, values, physical="low")


def streambed(pick: Pick) -> Params:
    """Pick head-room, and the change of demand after which the job is planned again.

    Returns:
        Parameters of the policy; all three are relative to the demand.
    """
    return {
        "overprovisioning": pick.real("overprovisioning", 1.0, 3.0),
        "above": pick.real("above", 1.0, 1.1),
        "below": pick.real("below", 0.2, 0.95),
    }


def daedalus(pick: Pick) -> Params:
    """Pick the longest recovery, patience, and what the model and its forecast are fitted to.

    Returns:
        Parameters of the policy `daedalus`, by name.
    """
    rest = pick.one("rest_s", [60.0, 180.0, 300.0])
    return {
        "rest_s": rest,
        "hold_s": rest + pick.one("hold_beyond_rest_s", [0.0, 420.0, 1200.0]),
        "target_recovery_s": pick.real("target_recovery_s", 60.0, 1800.0, log=True),
        "horizon_s": pick.one("horizon_s", [300.0, 900.0, 1800.0, 3600.0]),
        "trusted_error": pick.real("trusted_error", 0.02, 0.5, log=True),
        "order": pick.whole("order", 1, 5),
        "min_cpu_spread": pick.real("min_cpu_spread", 0.005, 0.2, log=True),
    }


def conttune(pick: Pick) -> Params:
    """Pick the trust in the process, the step of the Big phase, and the DS2 inside.

    Returns:
        Parameters of the policy `conttune`, those of its DS2 under `ds2`.
    """
    return {
        "ds2": ds2(pick),
        "alpha": pick.real("alpha", 0.0, 6.0),
        "backpressure_ms_per_s": pick.real("backpressure_ms_per_s", 50.0, 900.0),
        "big_factor": pick.real("big_factor", 1.1, 3.0),
    }
