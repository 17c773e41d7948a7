"""Configuration: keys, units, periods, and what is refused."""

from __future__ import annotations

import pytest

from baselines.flink_autoscaler.options import Options, described
from baselines.flink_autoscaler.periods import excluded, periods
from baselines.flink_autoscaler.settings import BALANCED, LEGACY_MAXIMIZE, Switches, settings_of
from baselines.flink_autoscaler.units import duration_ms, memory_bytes, memory_text
from dsp_gym.errors import ConfigError
from dsp_gym.policies import PolicyConfig, make

KEY = "job.autoscaler."
# Every key of section 11 of the operator's documentation with its default.
DOCUMENTED = {
    "enabled": "False", "scaling.enabled": "True", "metrics.window": "900000",
    "stabilization.interval": "300000", "excluded.periods": "()", "utilization.target": "0.7",
    "target.utilization.boundary": "0.3", "utilization.max": "None", "utilization.min": "None",
    "scale-down.interval": "3600000", "vertex.min-parallelism": "1",
    "vertex.max-parallelism": "200", "scale-down.max-factor": "0.6",
    "scale-up.max-factor": "100000.0", "catch-up.duration": "1800000", "restart.time": "300000",
    "restart.time-tracking.enabled": "False", "restart.time-tracking.limit": "900000",
    "backlog-processing.lag-threshold": "300000",
    "observed-true-processing-rate.lag-threshold": "30000",
    "observed-true-processing-rate.switch-threshold": "0.15",
    "observed-true-processing-rate.min-observations": "2",
    "scaling.effectiveness.detection.enabled": "False", "scaling.effectiveness.threshold": "0.1",
    "memory.gc-pressure.threshold": "1.0", "memory.heap-usage.threshold": "1.0",
    "memory.tuning.enabled": "False", "memory.tuning.overhead": "0.2",
    "memory.tuning.maximize-managed-memory": "False",
    "memory.tuning.scale-down-compensation.enabled": "True", "history.max.count": "3",
    "history.max.age": "86400000", "metrics.busy-time.aggregator": "MAX",
    "vertex.exclude.ids": "()", "scaling.event.interval": "1800000",
    "flink.rest-client.timeout": "10000", "quota.memory": "None", "quota.cpu": "None",
    "scaling.key-group.partitions.adjust.mode": "EVENLY_SPREAD",
    "observed-scalability.enabled": "False", "observed-scalability.min-observations": "3",
    "observed-scalability.coefficient-min": "0.5", "scaling.parallelism-alignment.mode": "BALANCED",
    "metrics.custom-evaluators": "()", "scaling.custom-executors": "()",
}  # fmt: skip


def test_every_documented_key_has_its_own_name_and_default():
    assert {key.removeprefix(KEY): default for key, (default, _) in described().items()} == (
        DOCUMENTED
    )


@pytest.mark.parametrize(
    "configuration",
    [
        {"job.autoscaler.metrics.window": "3 min"},
        {"job": {"autoscaler": {"metrics": {"window": "3 min"}}}},
        {"kubernetes.operator.job.autoscaler.metrics.window": "180 s"},
        {"job.autoscaler": {"metrics.window": "180000"}, "taskmanager.numberOfTaskSlots": 4},
    ],
)
def test_a_configuration_is_read_flat_nested_and_under_its_old_prefix(configuration):
    assert Options.of(configuration).window_ms == 180_000


def test_deprecated_names_give_way_to_the_new_ones():
    old = {f"{KEY}target.utilization": "0.5", f"{KEY}scale-up.grace-period": "10 min"}
    assert Options.of(old).utilization_target == 0.5
    assert Options.of(old).scale_down_interval_ms == 600_000
    assert Options.of({**old, f"{KEY}utilization.target": "0.8"}).utilization_target == 0.8


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({f"{KEY}metric.window": "3 min"}, "Did you mean 'job.autoscaler.metrics.window'"),
        ({"job.autoscalr.enabled": "true"}, "Did you mean 'job.autoscaler.enabled'"),
        ({f"{KEY}enabled": "yes"}, "neither true nor false"),
        ({f"{KEY}metrics.window": "long"}, "not a duration"),
        ({f"{KEY}metrics.window": "3 moons"}, "'moons' is not a unit of time"),
        ({f"{KEY}quota.memory": "4 gigs"}, "'gigs' is not a unit of memory"),
        ({f"{KEY}utilization.target": "much"}, "not a number"),
        ({f"{KEY}vertex.min-parallelism": "1.5"}, "not a whole number"),
        ({f"{KEY}metrics.busy-time.aggregator": "LONGEST"}, "Choose from: AVG, MAX, MIN"),
        ({f"{KEY}utilization.max": "0.5"}, r"must lie in \[0.7, 1\]"),
        ({f"{KEY}utilization.min": "0.9"}, r"must lie in \[0, 0.7\]"),
        ({f"{KEY}scale-up.max-factor": "-1"}, r"must lie in \[0, ...\]"),
        ({f"{KEY}vertex.min-parallelism": "300"}, "above vertex.max-parallelism"),
        ({f"{KEY}metrics.busy-time.aggregator": "MIN"}, "busy time of the least busy subtask"),
        ({f"{KEY}excluded.periods": "10:00-09:00"}, "it ends before it starts"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_key(configuration, message):
    config = PolicyConfig(policy="flink-autoscaler", params={"flink_configuration": configuration})
    with pytest.raises(ConfigError, match=message) as raised:
        make(config)
    assert next(iter(configuration)) in str(raised.value)


def test_keys_of_plugins_carry_names_of_the_users_own():
    Options.of({f"{KEY}metrics.custom-evaluator.mine.class": "org.example.Mine"})


def test_the_switches_of_main_follow_its_keys():
    assert settings_of(Options.of({}), Switches.main(Options.of({}))).mode == BALANCED
    old = Options.of({f"{KEY}scaling.key-group.partitions.adjust.mode": "MAXIMIZE_UTILISATION"})
    assert settings_of(old, Switches.main(old)).mode == LEGACY_MAXIMIZE
    new = Options.of({f"{KEY}scaling.parallelism-alignment.mode": "OFF"})
    assert Switches.main(new) == Switches("off", "gauge", "final")
    assert Switches() == Switches("legacy", "rate", "clamped")


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1 d", 86_400_000), ("2h", 7_200_000), ("5 m", 300_000), ("7 seconds", 7000),
     ("1500", 1500), ("10 MIN", 600_000), ("9 ns", 0)],
)  # fmt: skip
def test_durations_are_written_as_flink_writes_them(text, ms):
    assert duration_ms(text, "key") == ms


def test_memory_sizes_are_read_and_written_in_flinks_units():
    assert memory_bytes("2g", "key") == memory_bytes("2048 mb", "key") == 2 << 30
    assert memory_text(2 << 30) == "2 gb"
    assert memory_text((2 << 30) + 1024) == "2097153 kb"
    assert memory_text((2 << 30) + 1) == "2147483649 bytes"


def at(text: str, ms: int) -> bool:
    return excluded(periods(tuple(text.split(";")), "key"), ms)


NOON = 1_717_243_200_000  # Saturday, 2024-06-01 12:00:00 UTC


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("11:59:59-12:00:00", True),  # ends included
        ("12:00:01-13:00:00", False),
        ("* * 12 * * ?", True),
        ("0 0/30 12 * * ?", True),
        ("0 10/30 12 * * ?", False),
        ("* * * ? * SAT", True),
        ("* * * ? * 7", True),  # Sunday is 1
        ("* * * ? * FRI-MON", True),  # over the turn of the week
        ("* * * ? * MON-FRI", False),
        ("* * * ? * 7#1", True),  # the first Saturday
        ("* * * ? * 7#2", False),
        ("* * * ? * 7L", False),  # the last one
        ("* * * 1 JUN ?", True),
        ("* * * L * ?", False),
        ("* * * 1W * ?", False),  # moves to Monday the 3rd: the month is not left
        ("* * * ? * * 2023", False),
        ("* * * ? * * 2024", True),
        ("* * * ? * SAT && 11:00:00-13:00:00", True),
        ("* * * ? * SAT && 13:00:00-14:00:00", False),
        ("01:00:00-02:00:00;11:00:00-13:00:00", True),
    ],
)
def test_an_excluded_period_holds_at_noon_of_a_saturday(text, inside):
    assert at(text, NOON) is inside


@pytest.mark.parametrize(
    "text", ["* * * * * *", "* * * ? * ?", "* * *", "60 * * * * ?", "* * * ? * 8", "soon",
             "01:00:00-02:00:00 && 03:00:00-04:00:00", "* * * ? * SAT && * * * ? * SUN"]
)  # fmt: skip
def test_a_period_that_quartz_refuses_is_refused(text):
    with pytest.raises(ConfigError):
        at(text, NOON)
