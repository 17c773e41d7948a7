"""A fleet at a glance: sums, causes, order and the headline, worked out by hand."""

from __future__ import annotations

import pytest

from dsp_gym.control.overview import JobLine, causes, headline, place, totals
from dsp_gym.control.verdict_summary import Block, SavingRange, VerdictSummary

DAYS = Block(subject="days observed", found="2 of 7 days", needed="≥ 7 days")
MODEL = Block(subject="model", found="beyond its bounds", needed="errors within bounds")
SAVING = Block(subject="saving", found="0 to 3 %", needed="≥ 5 %")


def verdict(word, value=None, low=None, high=None, *, blocks=(), claimed=0.0) -> VerdictSummary:
    saving = None if value is None else SavingRange(value=value, low=low, high=high)
    return VerdictSummary(
        policy=None if word is None else "planner",
        word=word,
        sentence="…",
        days=2.0,
        cost_per_month=100.0,
        saving=saving,
        claimed_per_month=claimed,
        blocks=blocks,
    )


PROMOTED = JobLine("clicks", "USD", 400.0, verdict=verdict("promote", 90, 80, 99, claimed=80))
WATCHED = JobLine("adverts", "USD", 300.0, verdict=verdict("keep watching", 60, -5, 90,
                                                          blocks=(DAYS, SAVING)))  # fmt: skip
UNTRUSTED = JobLine("search", "USD", 200.0, verdict=verdict("keep watching", blocks=(MODEL, DAYS)))
RESCUED = JobLine("payments", "USD", 50.0, 1000.0, verdict=verdict("rescue", -30, -40, -20))
NEW = JobLine("new", "USD", 70.0)
GONE = JobLine("refunds", trouble="there is no job file 'refunds.yaml'")
FLEET = (PROMOTED, WATCHED, UNTRUSTED, RESCUED, NEW, GONE)


def test_what_is_certain_and_what_is_likely_are_kept_apart():
    (one,) = totals(FLEET)
    assert (one.currency, one.jobs, one.spent) == ("USD", 5, 1020.0)
    assert (one.claimed, one.claimed_jobs) == (80.0, 1)
    assert (one.likely, one.likely_low, one.likely_high, one.likely_jobs) == (60.0, -5.0, 90.0, 1)
    assert (one.rescue, one.rescue_jobs) == (30.0, 1)


def test_the_headline_says_what_is_spent_saved_and_in_the_way():
    assert headline(FLEET) == (
        "5 jobs cost 1,020 USD a month. 80 USD can be saved for certain, on 1 job; another 60 USD "
        "(-5 to 90) likely, on 1 job. 1 job needs 30 USD a month more to be in time. What blocks "
        "the rest: not watched for long enough (1 job); the model does not fit (1 job); no verdict "
        "yet (1 job); not seen (1 job)."
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "Nothing is known of the cost yet."),
        (
            (NEW,),
            "1 job costs 70 USD a month. Nothing can be saved for certain yet. What blocks it: no "
            "verdict yet (1 job).",
        ),
        (
            (WATCHED,),
            "1 job costs 300 USD a month. Nothing can be saved for certain yet; 60 USD (-5 to 90) "
            "likely, on 1 job. What blocks it: not watched for long enough (1 job).",
        ),
        ((PROMOTED,), "1 job costs 400 USD a month. 80 USD can be saved for certain, on 1 job."),
    ],
)
def test_a_headline_of_few_jobs(lines, said):
    assert headline(lines) == said


def test_money_of_two_currencies_is_never_added():
    euros = JobLine("berlin", "EUR", 500.0, verdict=verdict("promote", 50, 40, 60, claimed=40))
    assert [(one.currency, one.spent) for one in totals((PROMOTED, euros))] == [
        ("EUR", 500.0), ("USD", 400.0),
    ]  # fmt: skip
    assert "500 EUR" in headline((PROMOTED, euros))
    assert "900" not in headline((PROMOTED, euros))


def test_late_jobs_come_first_the_longest_first_then_unseen_ones_then_savings():
    later = JobLine("later", "USD", 10.0, 2000.0)
    assert [line.name for line in sorted((*FLEET, later), key=place)] == [
        "payments", "later", "refunds", "clicks", "adverts", "search", "new",
    ]  # fmt: skip


def test_each_job_is_blocked_by_one_cause():
    dear = JobLine("dear", "USD", 9.0, verdict=verdict("reject", -5, -6, -4, blocks=(SAVING,)))
    little = JobLine("little", "USD", 9.0, verdict=verdict("reject", 1, 0, 2, blocks=(SAVING,)))
    unsure = JobLine("u", "USD", 9.0, verdict=verdict("keep watching", 5, 0, 9, blocks=(SAVING,)))
    late = JobLine("late", "USD", 9.0, verdict=verdict(None))
    assert [one.cause for one in (dear, little, unsure, late)] == [
        "dearer", "saving", "unsure", "late",
    ]  # fmt: skip
    found = causes((*FLEET, JobLine("newer", "USD", 5.0)))
    assert (found[0].code, found[0].jobs) == ("verdict", ("new", "newer"))
    assert sum(len(one.jobs) for one in found) == 5
    assert not causes((PROMOTED, RESCUED))
