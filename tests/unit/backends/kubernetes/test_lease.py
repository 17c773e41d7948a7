"""Leases of two instances, with a clock of each."""

from __future__ import annotations

import pytest

from dsp_gym.backends.kubernetes.lease import Lease
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
