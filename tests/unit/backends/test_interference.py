"""What is somebody else's change, and what is not."""

from __future__ import annotations

from dsp_gym.backends.interference import Interference, InterferenceWatch


def foreign(watch: InterferenceWatch, mark: object) -> bool:
    return watch.is_foreign(mark, watch.version())


def test_the_first_mark_is_the_baseline():
    watch = InterferenceWatch()
    assert not foreign(watch, "a")
    assert not foreign(watch, "a")
    assert foreign(watch, "b")


def test_what_is_being_asked_for_may_stand_or_not():
    watch = InterferenceWatch()
    assert not foreign(watch, "a")
    watch.asking("b")
    assert not foreign(watch, "a")
    assert not foreign(watch, "b")
    assert foreign(watch, "c")


def test_what_was_replaced_may_not_come_back():
    watch = InterferenceWatch()
    assert not foreign(watch, "a")
    watch.asking("b")
    watch.stands("b")
    assert foreign(watch, "a")


def test_what_was_put_back_may_be_followed_by_a_late_request():
    watch = InterferenceWatch()
    assert not foreign(watch, "a")
    watch.asking("b", "a")
    watch.stands("a", settled=False)
    assert not foreign(watch, "b")


def test_a_mark_that_was_read_before_a_request_says_nothing():
    watch = InterferenceWatch()
    assert not foreign(watch, "a")
    version = watch.version()
    watch.asking("b")
    watch.stands("b")
    assert not watch.is_foreign("a", version)


def test_a_new_beginning_takes_the_next_mark_for_the_baseline():
    watch = InterferenceWatch()
    assert not foreign(watch, "a")
    watch.begin()
    assert not foreign(watch, "b")
    assert foreign(watch, "a")


def test_the_sentence_says_what_when_and_who():
    found = Interference("map=2", "map=4", 0.0, "kubectl-edit")
    assert found.reason == (
        "kubectl-edit has changed the job, as seen at 1970-01-01 00:00:00 UTC: from map=2 to "
        "map=4; nothing is asked of it until this process is started again"
    )
    assert found.document()["by"] == "kubectl-edit"
