"""Leases of two instances, with a clock of each."""

from __future__ import annotations

import pytest

from dsp_gym.backends.kubernetes.lease import MEMORY, Lease
from dsp_gym.errors import KubernetesError


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class Server:
    """One lease; versions are counted."""

    def __init__(self):
        self.body, self.version, self.trouble = None, 0, None

    def _meet(self):
        if self.trouble is not None:
            raise KubernetesError("trouble", reason=self.trouble)

    def get(self, kind, namespace, name):
        self._meet()
        if self.body is None:
            raise KubernetesError("none", reason="NotFound")
        return self.body

    def create(self, kind, namespace, body):
        self._meet()
        if self.body is not None:
            raise KubernetesError("taken", reason="Conflict")
        return self.keep(body)

    def replace(self, kind, namespace, name, body):
        self._meet()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise KubernetesError("stale", reason="Conflict")
        return self.keep(body)

    def keep(self, body):
        self.version += 1
        meta = {**body["metadata"], "resourceVersion": str(self.version)}
        self.body = {**body, "metadata": meta}
        return self.body


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(server, clock):
    return lambda holder, clock=clock: Lease(
        server, "jobs", "words", holder, 10, clock, lambda: 1.5e9 + clock()
    )


def test_a_lease_runs_out_when_it_is_not_renewed(make, clock):
    mine, other = make("me"), make("other")
    assert mine.try_acquire()
    assert not other.try_acquire()
    clock.now_s = 9.0
    assert mine.is_held_now()
    assert not other.try_acquire()
    clock.now_s = 10.0
    assert not mine.is_held_now()
    assert other.try_acquire()
    assert other.is_held_now()
    assert not mine.try_acquire()


def test_a_renewed_lease_goes_on(make, clock):
    mine, other = make("me"), make("other")
    mine.try_acquire()
    for _ in range(5):
        clock.now_s += 6
        assert not other.try_acquire()
        assert mine.try_acquire()
    assert mine.is_held_now()


def test_another_waits_the_whole_duration_from_its_own_first_look(make, clock):
    mine, other = make("me"), make("other")
    mine.try_acquire()
    clock.now_s = 100.0  # the lease ran out long ago, but this one has only now come
    assert not other.try_acquire()
    clock.now_s = 109.9
    assert not other.try_acquire()
    clock.now_s = 110.0
    assert other.try_acquire()


def test_clocks_of_two_machines_need_not_agree(server):
    ahead, behind = Clock(), Clock()
    ahead.now_s = 1e6
    first = Lease(server, "jobs", "words", "first", 10, ahead, ahead)
    second = Lease(server, "jobs", "words", "second", 10, behind, behind)
    assert first.try_acquire()
    assert not second.try_acquire()
    ahead.now_s += 5
    behind.now_s += 5
    assert first.is_held_now()
    assert not second.try_acquire()


def test_what_takes_longer_than_the_lease_is_not_begun(make, clock):
    mine = make("me")
    mine.try_acquire()
    clock.now_s = 4.0
    assert mine.is_held_now(for_s=5)
    assert not mine.is_held_now(for_s=6)


def test_a_lease_counts_from_before_it_was_asked_for(server, clock, make):
    class Slow(Server):
        def create(self, kind, namespace, body):
            clock.now_s += 7  # the answer is late
            return super().create(kind, namespace, body)

    slow = Slow()
    mine = Lease(slow, "jobs", "words", "me", 10, clock, clock)
    assert mine.try_acquire()
    assert not mine.is_held_now(for_s=4)


@pytest.mark.parametrize("reason", ["Timeout", "Unreachable", "Forbidden"])
def test_while_the_server_does_not_say_it_is_not_held(make, server, reason):
    mine = make("me")
    mine.try_acquire()
    server.trouble = reason
    assert not mine.is_held_now()
    with pytest.raises(KubernetesError):
        mine.try_acquire()
    server.trouble = None
    assert mine.is_held_now()
    assert mine.try_acquire()


def test_a_lease_taken_by_hand_is_lost(make, server):
    mine = make("me")
    mine.try_acquire()
    server.keep({**server.body, "spec": {**server.body["spec"], "holderIdentity": "operator"}})
    assert not mine.is_held_now()
    assert not mine.try_acquire()


def test_a_lease_with_words_for_numbers_is_over_after_our_own_duration(make, server, clock):
    other = make("other")
    other.try_acquire()
    spec = {**server.body["spec"], "leaseDurationSeconds": "long", "leaseTransitions": "many"}
    server.keep({**server.body, "spec": spec})
    mine = make("me")
    assert not mine.try_acquire()
    assert "another instance holds the lease 'words': other" in mine.taken()
    clock.now_s = 10.0
    assert mine.try_acquire()
    assert server.body["spec"]["leaseTransitions"] == 1


def test_a_term_begins_when_it_is_taken_and_not_when_it_is_renewed(make, server, clock):
    mine, other = make("me"), make("other")
    assert mine.term == 0
    for _ in range(2):
        mine.try_acquire()
        assert mine.term == 1
    mine.release()
    other.try_acquire()
    other.release()
    mine.try_acquire()
    assert (mine.term, other.term) == (2, 1)


def test_a_term_begins_though_the_answer_to_its_first_write_is_lost(make, server):
    mine, create = make("me"), server.create

    def then_lose(*where):
        create(*where)
        raise KubernetesError("no answer", reason="Timeout", may_have_acted=True)

    server.create = then_lose
    with pytest.raises(KubernetesError):
        mine.try_acquire()
    assert mine.try_acquire()
    assert mine.term == 1


def test_the_faster_of_two_takes_a_free_lease(make, server):
    mine, other = make("me"), make("other")
    first = server.create

    def late(kind, namespace, body):
        server.create = first
        assert other.try_acquire()
        return first(kind, namespace, body)

    server.create = late
    assert not mine.try_acquire()
    assert other.is_held_now()


def test_turns_and_times_are_written_for_people(make, server, clock):
    mine, other = make("me"), make("other")
    mine.try_acquire()
    assert server.body["spec"]["leaseTransitions"] == 0
    assert server.body["spec"]["renewTime"] == "2017-07-14T02:40:00.000000Z"
    mine.release()
    assert server.body["spec"]["holderIdentity"] == ""
    other.try_acquire()
    assert server.body["spec"]["leaseTransitions"] == 1
    mine.release()  # it is another's
    assert server.body["spec"]["holderIdentity"] == "other"


def left_in(server):
    return server.body["metadata"].get("annotations", {}).get(MEMORY)


def test_what_a_holder_leaves_is_inherited_by_the_next(make, server, clock):
    first, second = make("first"), make("second")
    first.try_acquire()
    assert first.inherited is None
    first.memory = "rests until noon"
    first.try_acquire()
    assert left_in(server) == "rests until noon"
    assert not second.try_acquire()
    assert second.inherited is None
    clock.now_s = 10.0  # the first is gone without a word
    assert second.try_acquire()
    assert second.inherited == "rests until noon"
    clock.now_s = 13.0
    second.try_acquire()  # nothing was decided yet, so what was left stays for a third
    assert left_in(server) == "rests until noon"
    second.release()
    third = make("third")
    assert third.try_acquire()
    assert third.inherited == "rests until noon"


def test_what_a_former_holder_remembers_never_replaces_what_came_after(make, server, clock):
    first, second = make("first"), make("second")
    first.try_acquire()
    first.memory = "old"
    assert first.try_acquire()
    assert not second.try_acquire()
    clock.now_s = 10.0
    assert second.try_acquire()
    second.memory = "new"
    assert second.try_acquire()
    second.release()
    assert first.try_acquire()  # without having seen the other hold it
    assert (first.inherited, first.memory, first.term) == ("new", None, 2)
    assert left_in(server) == "new"


def test_a_lease_that_was_deleted_is_made_with_what_its_holder_remembers(make, server, clock):
    mine = make("me")
    mine.try_acquire()
    mine.memory = "mine"
    server.body = None
    assert mine.try_acquire()
    assert (left_in(server), mine.inherited, mine.term) == ("mine", None, 2)


def test_who_stands_by_says_why_without_asking_the_server(make, server, clock):
    mine, other = make("me"), make("other")
    assert mine.standby() == "the lease 'words' could not be taken or renewed"
    mine.try_acquire()
    other.try_acquire()
    server.trouble = "Unreachable"
    assert mine.standby() is None
    assert other.standby() == "another instance holds the lease 'words': me"
    clock.now_s = 10.0
    assert mine.standby() == "the lease 'words' could not be taken or renewed"


def test_a_new_term_is_told_before_the_lease_is_seen_to_be_held(server, clock):
    class Watched(Lease):
        def __setattr__(self, name, value):
            if name == "_until_s" and value > clock():
                assert self.term == 1
            super().__setattr__(name, value)

    assert Watched(server, "jobs", "words", "me", 10, clock, clock).try_acquire()


def test_while_a_renewal_is_on_its_way_the_lease_is_still_held(make, server, clock):
    mine, replace, seen = make("me"), server.replace, []

    def slow(*where):
        seen.append(mine.standby())
        raise KubernetesError("no answer", reason="Timeout", may_have_acted=True)

    mine.try_acquire()
    clock.now_s = 5.0
    server.replace = slow
    with pytest.raises(KubernetesError):
        mine.try_acquire()
    assert seen == [None]
    assert mine.standby() is None  # as long as the answer to the last one says
    clock.now_s = 10.0
    assert mine.standby() is not None
    server.replace = replace
    assert mine.try_acquire()


def test_a_renewal_that_meets_a_conflict_holds_nothing(make, server):
    mine, replace = make("me"), server.replace

    def late(*where):
        server.keep({**server.body, "spec": {**server.body["spec"], "holderIdentity": "other"}})
        return replace(*where)

    mine.try_acquire()
    server.replace = late
    assert not mine.try_acquire()
    assert mine.standby() is not None
