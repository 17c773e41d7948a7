"""Input of the compiled rules: options as numbers, and the switches between releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from baselines.flink_autoscaler.options import Options
from dsp_gym.numba_handles import by_address

Alignment = Literal["legacy", "balanced", "evenly", "off"]
LEGACY_EVENLY, LEGACY_MAXIMIZE, BALANCED, EVENLY, OFF = range(5)
_MODES = {"balanced": BALANCED, "evenly": EVENLY, "off": OFF}
_KEYS: dict[str, Alignment] = {"BALANCED": "balanced", "EVENLY_SPREAD": "evenly", "OFF": "off"}


@dataclass(frozen=True)
class Switches:
    """Decisions of main that differ from 1.15.0; the defaults are 1.15.0's."""

    alignment: Alignment = "legacy"
    tpr_numerator: Literal["rate", "gauge"] = "rate"
    expected_rate: Literal["clamped", "final"] = "clamped"

    @classmethod
    def main(cls, options: Options) -> Switches:
        """Read the switches of main: its alignment key, unless only the deprecated one is set.

        Returns:
            The switches.
        """
        legacy = "adjust_mode" in options.given and "alignment_mode" not in options.given
        named = _KEYS.get(options.alignment_mode.upper(), "off")
        return cls("legacy" if legacy else named, "gauge", "final")


class Settings(NamedTuple):
    """Options as the compiled rules read them; times in whole seconds where Flink truncates."""

    window_ms: int  # averaging window
    stabilization_ms: int
    target: float  # utilisation aimed at
    upper: float  # utilisation above which a vertex scales up
    lower: float  # utilisation below which it scales down
    catch_up_s: float
    backlog_s: float
    restart_s: float
    tracking: bool
    restart_limit_s: float
    observed_lag_s: float
    observed_switch: float
    observed_min: int
    average_busy: bool
    gauge_numerator: bool  # records from per-second gauges (main)
    final_expected: bool  # expected rate of the final parallelism (main)
    mode: int  # alignment, one of the modes above
    min_factor: float  # least factor of a scale-down
    max_factor: float  # largest factor of a scale-up
    scale_down_interval_ms: int
    min_parallelism: int
    max_parallelism: int
    detection: bool
    effectiveness: float
    scalability: bool
    scalability_min: int
    scalability_lowest: float
    history_count: int
    history_age_ms: int
    gc_threshold: float
    heap_threshold: float


# Passed by address: thirty numbers as arguments of every function would cost compile time.
by_address(Settings)


def settings_of(options: Options, switches: Switches) -> Settings:
    """Turn options and switches into numbers.

    Returns:
        The settings; times in ms or whole seconds, as Flink has them.
    """
    o = options
    legacy = LEGACY_EVENLY if o.adjust_mode == "EVENLY_SPREAD" else LEGACY_MAXIMIZE
    upper, lower = o.utilization_max, o.utilization_min
    return Settings(
        window_ms=o.window_ms,
        stabilization_ms=o.stabilization_ms,
        target=o.utilization_target,
        upper=o.utilization_target + o.utilization_boundary if upper is None else upper,
        lower=o.utilization_target - o.utilization_boundary if lower is None else lower,
        # Flink calls Duration.toSeconds here, which truncates.
        catch_up_s=float(o.catch_up_ms // 1000),
        backlog_s=float(o.backlog_ms // 1000),
        restart_s=float(o.restart_ms // 1000),
        tracking=o.restart_tracking,
        restart_limit_s=float(o.restart_limit_ms // 1000),
        observed_lag_s=float(o.observed_lag_ms // 1000),
        observed_switch=o.observed_switch,
        observed_min=o.observed_min,
        average_busy=o.busy_aggregator == "AVG",
        gauge_numerator=switches.tpr_numerator == "gauge",
        final_expected=switches.expected_rate == "final",
        mode=legacy if switches.alignment == "legacy" else _MODES[switches.alignment],
        min_factor=1 - o.scale_down_max_factor,
        max_factor=1 + o.scale_up_max_factor,
        scale_down_interval_ms=o.scale_down_interval_ms,
        min_parallelism=o.min_parallelism,
        max_parallelism=o.max_parallelism,
        detection=o.effectiveness_detection,
        effectiveness=o.effectiveness_threshold,
        scalability=o.scalability,
        scalability_min=o.scalability_min,
        scalability_lowest=o.scalability_lowest,
        history_count=o.history_count,
        history_age_ms=o.history_age_ms,
        gc_threshold=o.gc_threshold,
        heap_threshold=o.heap_threshold,
    )
