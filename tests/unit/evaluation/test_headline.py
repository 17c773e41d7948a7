"""The sentence a scorecard begins with."""

from dsp_gym.evaluation.headline import headline
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
