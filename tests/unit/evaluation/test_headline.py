"""The sentence a scorecard begins with."""

from dsp_gym.evaluation.headline import headline
from dsp_gym.evaluation.report import ranked_table, report_of
from dsp_gym.evaluation.scorecard import EPISODE_METRICS, Scorecard, ScorecardCell, score


def card(found: dict[str, tuple[float, float]], reference: str | None = "ds2", own=()) -> Scorecard:
    """A scorecard of costs and lateness by policy, on two jobs; one costs ten times as much."""
    cells = [
        ScorecardCell(
            policy=policy,
            job=job,
            load="day",
            seed=0,
            metrics=dict.fromkeys(EPISODE_METRICS, 1.0) | {"cost": scale * cost, "slo_share": late},
            trips={},
        )
        for policy, (cost, late) in found.items()
        for job, scale in (("q1", 1.0), ("q11", 10.0))
    ]
    return Scorecard(
        reference=reference,
        config={"policies": [{"name": name, "policy": folder} for name, folder in own]},
        versions={},
        rows=score(cells, reference=reference, confidence=0.9, resamples=10),
        cells=tuple(cells),
    )


def test_the_best_policy_stands_against_the_reference():
    said = headline(card({"ds2": (4.0, 0.53), "justin": (5.0, 0.03), "mdp": (3.4, 0.021)}))
    assert said == (
        "mdp costs 15 % less than ds2 and is late 2.1 % of the time against 53 %; "
        "mdp is the cheapest of those late at most 5 %."
    )


def test_the_readers_own_policy_is_spoken_of_even_where_another_is_better(tmp_path):
    found = {"ds2": (4.0, 0.04), "mine": (4.4, 0.04), "mdp": (3.4, 0.02)}
    assert headline(card(found, own=[("mine", str(tmp_path))])) == (
        "mine costs 10 % more than ds2 and is late 4 % of the time against 4 %; "
        "mdp is the cheapest of those late at most 5 %."
    )


def test_a_policy_that_is_late_too_often_is_not_called_cheap():
    said = headline(card({"ds2": (4.0, 0.5), "mdp": (3.4, 0.2)}))
    assert said.endswith("mdp is late more than the 5 % allowed.")


def test_without_a_reference_the_best_is_named_alone():
    said = headline(card({"ds2": (4.0, 0.01), "mdp": (3.4, 0.02)}, reference=None))
    assert said == "mdp is the cheapest of those late at most 5 %."


def test_costs_that_differ_by_noise_are_the_same():
    said = headline(card({"ds2": (4.0, 0.06), "mdp": (4.001, 0.02)}))
    assert said.startswith("mdp costs as much as ds2 and")


def test_a_policy_that_knows_the_load_is_never_the_best():
    said = headline(card({"ds2": (4.0, 0.01), "clairvoyant": (2.0, 0.0)}))
    assert said == "ds2 is the cheapest of those late at most 5 %."


def test_headline_and_table_use_one_statistic():
    """A quarter of the runs is very late: the mean says so, an interquartile mean would not."""
    cells = [
        ScorecardCell(
            policy=policy,
            job="q1",
            load="day",
            seed=seed,
            metrics=dict.fromkeys(EPISODE_METRICS, 1.0)
            | {"cost": cost, "slo_share": 0.16 if seed == 0 else 0.004},
            trips={},
        )
        for policy, cost in (("ds2", 4.0), ("mdp", 3.0))
        for seed in range(4)
    ]
    found = Scorecard(
        reference="ds2",
        config={},
        versions={},
        statistic="mean",
        rows=score(cells, reference="ds2", confidence=0.9, resamples=10),
        cells=tuple(cells),
    )
    said, rows = headline(found), ranked_table(found, "q1").rows
    assert said.startswith("mdp costs 25 % less than ds2 and is late 4.3 % of the time against")
    assert [row[:4] for row in rows] == [
        ("mdp", "3", "-25 %", "4.3 %"),
        ("ds2", "4", "–", "4.3 %"),
    ]


def test_several_jobs_have_a_table_together_with_the_figures_of_the_headline():
    found = card({"ds2": (4.0, 0.53), "mdp": (3.4, 0.021)})
    assert headline(found).startswith("mdp costs 15 % less than ds2 and is late 2.1 % of the time")
    first = report_of(found).parts[0].table
    assert first.title == "All jobs"
    assert first.rows[0] == ("mdp", "10.8", "-15 %", "2.1 %")
