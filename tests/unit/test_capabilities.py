"""What a policy can do beyond deciding is one record, and a page lists it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from dsp_gym.guardrails.shadow import ShadowPolicy
from dsp_gym.loop.per_job import per_job
from dsp_gym.policies import available, capabilities_of, make
from dsp_gym.policies.capabilities import Capabilities, without_reasons

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "policies.md"
NAMES = [field.name for field in fields(Capabilities)]

CAN = {
    "static": set(),
    "keda": set(),
    "aws-managed-flink": {"memories"},
    "dataflow": {"memories"},
    "beam-flink": {"memories"},
    "daedalus": set(),
    "conttune": set(),
    "dhalion-reactive": {"memories"},
    "ds2-reactive": {"memories"},
    "ds2": {"memories", "capacity"},
    "justin-paper": {"memories", "capacity", "compiled_model"},
    "flink-autoscaler": {"answer"},
    "streambed": {"plan_capacity"},
    "clairvoyant": {"know_future", "cost_bounds"},
    "planner": {"memories", "shared", "later_plans", "forecast", "price_lateness"},
    "learned-ppo": {"confidence", "shared", "training"},
}


@per_job
def plain(job) -> dict[str, int]:
    """Keeps everything as it runs."""
    return {}


def can(policy) -> set[str]:
    record = capabilities_of(policy)
    return {name for name in NAMES if getattr(record, name) is not None}


@pytest.mark.parametrize("name", CAN)
def test_a_shipped_policy_says_what_it_can(name):
    assert name in available()
    assert can(make(name)) == CAN[name] | {"leave_out_reasons"}


def test_a_policy_of_four_methods_has_the_empty_record_and_stays_as_it_is():
    policy = plain()
    assert capabilities_of(policy) == Capabilities()
    assert without_reasons(policy) is policy
    shadow = ShadowPolicy(policy)
    assert (shadow.model, shadow.memories()) == (None, None)


def test_the_page_has_a_row_for_every_field_in_order():
    section = PAGE.read_text("utf-8").partition("## Capabilities")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == NAMES
