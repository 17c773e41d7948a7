"""The proof, by the server's own word, that an account can only read.

The server is asked twice over: for all the rules that it knows of the account, and for each right
by itself. Rules speak of rights on single objects and of verbs nobody thought of; but authorizers
other than RBAC need not list theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dsp_gym.backends.kubernetes.answers import reading
from dsp_gym.backends.kubernetes.api import RESOURCE_KINDS, KubernetesApi
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import KubernetesError
from dsp_gym.loop.watchers import keep_watching

READS = ("get", "list", "watch")
WRITES = ("create", "update", "patch", "delete", "deletecollection")
_VERBS = frozenset((*READS, *WRITES, "*"))
_KINDS = ("FlinkDeployment", "FlinkSessionJob")
_SUBRESOURCES = (None, "status", "scale")
_OF_ONE = ("update", "patch", "delete")
"""Writes that may be granted for one object."""

_MOST_NAMES = 10
"""Objects asked for one by one where the server has told every rule."""

_GROUP = RESOURCE_KINDS["FlinkDeployment"][0].partition("/")[0]

EVERY_S = 600.0
"""Seconds between two proofs."""

_AGAIN_S = 60.0
"""Seconds to the next attempt where the server did not say."""


class WritableAccountError(KubernetesError):
    """An account that could write where it must only read."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of an account about resources of Flink, as the server states it."""

    verbs: tuple[str, ...]
    resources: tuple[str, ...]  # such as flinkdeployments/status; * is every one
    names: tuple[str, ...]  # of the only objects it is for; none: every one

    def writes(self) -> Iterator[str]:
        """Name what the rule allows beyond reading.

        Yields:
            Verb, resource and object, such as `patch FlinkDeployment/status 'orders'`.
        """
        kinds = {plural: kind for kind, (_, plural) in RESOURCE_KINDS.items()}
        for resource in self.resources:
            plural, _, sub = resource.partition("/")
            what = _named(kinds.get(plural, plural), sub or None)
            for verb in self.verbs:
                if verb not in READS:
                    yield from (f"{verb} {what} '{name}'" for name in self.names)
                    if not self.names:
                        yield f"{verb} {what}"


def rules_of(api: KubernetesApi, namespace: str) -> tuple[list[Rule], bool]:
    """Ask the server for every rule of the account about resources of Flink.

    Returns:
        The rules, and whether they are all there are: an authorizer need not list its own, and a
        server need not answer.

    Raises:
        KubernetesError: The server is out of reach, or the account is unknown.
    """
    try:
        review = api.request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            body={
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectRulesReview",
                "spec": {"namespace": namespace},
            },
        )
    except KubernetesError as error:
        if error.reason in ("Forbidden", "Unsupported", "NotFound"):
            return [], False
        raise
    with reading(api.url):
        status: Document = review.get("status") or {}
        found = [_rule(told) for told in status.get("resourceRules") or ()]
        return [rule for rule in found if rule is not None], not status.get("incomplete", False)


def prove_read_only(
    api: KubernetesApi, namespace: str, kind: str = _KINDS[0], names: Sequence[str] = ()
) -> list[str]:
    """Ask the server which writes the account may make.

    Args:
        api: the server.
        namespace: where.
        kind: of the objects that are named.
        names: objects that are watched; a right may be granted for one alone.

    Returns:
        Verbs, kinds and objects, such as `patch FlinkDeployment`; empty if it can only read.

    Raises:
        KubernetesError: The server does not say, which proves nothing.
    """
    rules, is_all = rules_of(api, namespace)
    found: dict[str, None] = {}  # an ordered set
    for sub in _SUBRESOURCES:
        for one in _KINDS:
            for verb in WRITES:
                if api.may(verb, one, namespace, subresource=sub):
                    found[f"{verb} {_named(one, sub)}"] = None
    if is_all and len(names) > _MOST_NAMES:
        names = ()
    for name in names:
        for sub in _SUBRESOURCES:
            for verb in _OF_ONE:
                what = f"{verb} {_named(kind, sub)}"
                if what not in found and api.may(verb, kind, namespace, name=name, subresource=sub):
                    found[f"{what} '{name}'"] = None
    for rule in rules:
        found |= dict.fromkeys(rule.writes())
    return list(found)


def check_read_only(
    api: KubernetesApi, namespace: str, kind: str = _KINDS[0], names: Sequence[str] = ()
) -> None:
    """Refuse an account that could write; arguments as for `prove_read_only`.

    Raises:
        WritableAccountError: The account could write.
        KubernetesError: The server does not say.
    """
    allowed = prove_read_only(api, namespace, kind, names)
    if allowed:
        raise WritableAccountError(
            f"the account may write in namespace '{namespace}': {', '.join(allowed)}; in shadow "
            "mode it must only read",
            reason="Invalid",
            remedy="Take the service account of the shadow manifests, which may get, list and "
            "watch.",
        )


def missing_rights(
    api: KubernetesApi, kind: str, namespace: str, *verbs: str, name: str | None = None
) -> list[str]:
    """Ask the server for rights that the account lacks.

    Args:
        api: the server.
        kind: one of `RESOURCE_KINDS`.
        namespace: where.
        *verbs: the rights; none: those of a reader.
        name: of the one object they are needed for; None: for every one.

    Returns:
        The missing ones of the verbs asked for.

    Raises:
        KubernetesError: The server does not say.
    """
    wanted = verbs or READS
    try:
        return [verb for verb in wanted if not api.may(verb, kind, namespace, name=name)]
    except KubernetesError as error:
        if error.reason == "Unauthorized":
            return list(wanted)
        raise


def hint(rules: Iterable[Rule]) -> str:
    """Say what is often wrong with a role that does not grant what its author meant.

    Returns:
        Sentences, each with a space before it; empty where nothing is odd.
    """
    rules = list(rules)
    said = ""
    unknown = sorted({verb for rule in rules for verb in rule.verbs} - _VERBS)
    if unknown:
        said += f" Its role has verbs that Kubernetes does not know: {', '.join(unknown)}."
    if any("*" in name for rule in rules for name in rule.names):
        said += " In resourceNames of its role '*' stands for no other name; leave them out."
    return said


class RightsWatch:
    """Repeats a proof in a thread until it is closed.

    Args:
        prove: raises WritableAccountError where the account could write, another KubernetesError
            where the server does not say.
        every_s: seconds between two proofs; None: `EVERY_S`.
    """

    def __init__(self, prove: Callable[[], None], every_s: float | None = None) -> None:
        self.error: WritableAccountError | None = None
        """Why the process must end; None while the account can only read, as far as is known."""
        self._prove, self._every_s = prove, EVERY_S if every_s is None else every_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="rights", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the question under way."""
        self._closing.set()

    def _keep(self) -> None:
        keep_watching("rights", self._watch, self._closing)

    def _watch(self) -> None:
        wait_s = self._every_s
        while not self._closing.wait(wait_s):
            try:
                self._prove()
            except WritableAccountError as error:
                self.error = error
                return
            except KubernetesError:
                wait_s = min(self._every_s, _AGAIN_S)
            else:
                wait_s = self._every_s


def _rule(told: Document) -> Rule | None:
    """A rule of the server; None where it is about no resources of Flink."""
    groups = {str(group) for group in told.get("apiGroups") or ()}
    resources = tuple(str(resource) for resource in told.get("resources") or ())
    if _GROUP not in groups:
        if "*" not in groups:
            return None
        plurals = {"*", *(RESOURCE_KINDS[kind][1] for kind in _KINDS)}
        resources = tuple(one for one in resources if one.partition("/")[0] in plurals)
        if not resources:
            return None
    verbs, names = told.get("verbs") or (), told.get("resourceNames") or ()
    return Rule(tuple(str(verb) for verb in verbs), resources, tuple(str(name) for name in names))


def _named(kind: str, subresource: str | None) -> str:
    return kind if subresource is None else f"{kind}/{subresource}"
