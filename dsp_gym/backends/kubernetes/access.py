"""The proof, by the server's own word, that an account can only read.

The server is asked for all the rules that it knows of the account: whatever a rule allows beyond
reading is too much, on any resource. Each write to Flink's resources is asked for by itself, too.
Authorizers other than RBAC, such as the webhooks of managed clusters, do not list their rules; the
server then says that its list is incomplete, and every right of `rights` is asked for by itself.
A role may be bound in another namespace, so the rules are asked for there, too: in every namespace
where the account may list them, else in the one of its pod.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dsp_gym.backends.kubernetes.answers import reading
from dsp_gym.backends.kubernetes.api import RESOURCE_KINDS, SERVICE_ACCOUNT, KubernetesApi
from dsp_gym.backends.kubernetes.rights import (
    FLINK_GROUP,
    FLINK_KINDS,
    READS,
    WRITES,
    Right,
    beyond_flink,
    of_flink,
)
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import KubernetesError
from dsp_gym.loop.watchers import keep_watching

_VERBS = frozenset((*READS, *WRITES, "*"))
_OF_ONE = ("update", "patch", "delete")
"""Writes that may be granted for one object."""

_MOST_NAMES = 10
"""Objects asked for one by one where the server has told every rule."""

_MOST_TOLD = 20
"""Rights that an error names; the rest is counted."""

_MOST_PLACES = 5
"""Namespaces in which an error names rights; the rest is counted."""

_LOOK_S = 30.0
"""Longest time for the rules in other namespaces, of which a cluster may have thousands, s."""

_NO_ANSWER = ("Forbidden", "Unsupported", "NotFound")
"""Why a server does not say what an account asks; anything else is a failure."""

EVERY_S = 600.0
"""Seconds between two proofs."""

_AGAIN_S = 60.0
"""Seconds to the next attempt where the server did not say."""

_ASKED = (
    "writes to Flink's resources, pods, workloads, services, configuration, secrets, leases, "
    "roles, admission and definitions; exec, attach, port-forward and proxies; reading secrets; "
    "tokens; impersonation"
)


class WritableAccountError(KubernetesError):
    """An account that could write where it must only read."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of an account, as the server states it."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]  # of the API; "" is the core, * is every one
    resources: tuple[str, ...]  # such as flinkdeployments/status; * is every one
    names: tuple[str, ...]  # of the only objects it is for; none: every one

    @property
    def is_about_flink(self) -> bool:
        """Whether it grants anything on Flink's resources."""
        plurals = {"*", *(RESOURCE_KINDS[kind][1] for kind in FLINK_KINDS)}
        return FLINK_GROUP in self.groups or (
            "*" in self.groups
            and any(resource.partition("/")[0] in plurals for resource in self.resources)
        )

    def excessive(self) -> Iterator[Right]:
        """Find what the rule allows beyond reading.

        Yields:
            Rights, such as `patch FlinkDeployment/status 'orders'` in words.
        """
        for resource in self.resources:
            for group in self.groups:
                for verb in self.verbs:
                    for name in self.names or (None,):
                        right = Right(verb, group, resource, name)
                        if right.is_excessive:
                            yield right


@dataclass(frozen=True, slots=True)
class ListedRules:
    """The rules of an account in a namespace, those of the whole cluster included."""

    listed: tuple[Rule, ...]
    lacks: str | None = None  # why there may be others; None: these are all


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What a server said about an account in other namespaces than that of the jobs."""

    looked_at: tuple[str, ...] = ()  # namespaces whose rules were read
    excessive: tuple[tuple[str, tuple[str, ...]], ...] = ()  # rights beyond reading, by namespace
    lacks: str | None = None  # why there may be other rules; None: these are all
    omitted: str | None = None  # why other namespaces were not looked at; None: there are none

    def __str__(self) -> str:
        said = ""
        if self.looked_at:
            number, every = len(self.looked_at), "" if self.omitted else "all "
            named = f"namespace '{self.looked_at[0]}'"
            named = named if number == 1 else f"{every}{number} other namespaces"
            said = f"; the rules listed in {named} only read, too"
        return said + (
            f"; not looked at: other namespaces ({self.omitted})" if self.omitted else ""
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """What a server said about an account that must only read."""

    server: str
    namespace: str
    asked: int  # rights that were asked for one by one
    excessive: tuple[str, ...] = ()  # rights beyond reading, such as `patch FlinkDeployment`
    unproved: tuple[str, ...] = ()  # what the server could not tell, in words
    elsewhere: Elsewhere = Elsewhere()

    @property
    def is_read_only(self) -> bool:
        """Whether no right beyond reading was found."""
        return not self.excessive and not self.elsewhere.excessive

    def __str__(self) -> str:
        if not self.is_read_only:
            own = ((self.namespace, self.excessive),) if self.excessive else ()
            return f"the account may write in {self._told((*own, *self.elsewhere.excessive))}"
        where = f"namespace '{self.namespace}' of {self.server}"
        if not self.unproved:
            return (
                f"the account may change nothing in {where}; asked: all its rules, which only "
                f"read, and {self.asked} rights one by one{self.elsewhere}"
            )
        return (
            f"the account has none of {self.asked} rights to change something in {where}; asked: "
            f"{_ASKED}{self.elsewhere}; not proved: {'; '.join(self.unproved)}"
        )

    def _told(self, found: Sequence[tuple[str, tuple[str, ...]]]) -> str:
        """Name rights by namespace."""
        said = []
        for namespace, rights in found[:_MOST_PLACES]:
            more = len(rights) - _MOST_TOLD
            said.append(
                f"namespace '{namespace}' of {self.server}: {', '.join(rights[:_MOST_TOLD])}"
                + (f", and {more} more" if more > 0 else "")
            )
        places = len(found) - _MOST_PLACES
        return ", and in ".join([*said, *([f"{places} more namespaces"] if places > 0 else [])])


def rules_of(api: KubernetesApi, namespace: str) -> ListedRules:
    """Ask the server for every rule of the account.

    Returns:
        The rules, and why they need not be all: an authorizer need not list its own, and a server
        need not answer.

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
        if error.reason in _NO_ANSWER:
            return ListedRules((), "the server does not list rules")
        raise
    with reading(api.url):
        status: Document = review.get("status") or {}
        listed = tuple(_rule(told) for told in status.get("resourceRules") or ())
        error_said = str(status.get("evaluationError") or "")
        is_all = not status.get("incomplete", False) and not error_said
        return ListedRules(
            listed, None if is_all else error_said or "the list of rules is incomplete"
        )


def prove_read_only(
    api: KubernetesApi, namespace: str, kind: str = FLINK_KINDS[0], names: Sequence[str] = ()
) -> Proof:
    """Ask the server which rights the account has beyond reading.

    Args:
        api: the server.
        namespace: where.
        kind: of the objects that are named.
        names: objects that are watched; a right may be granted for one alone.

    Returns:
        The rights beyond reading, none if it can only read, what the server could not tell, and
        which namespaces were looked at.

    Raises:
        KubernetesError: The server does not say, which proves nothing.
    """
    rules = rules_of(api, namespace)
    found = {str(right): None for rule in rules.listed for right in rule.excessive()}
    wanted = [*of_flink()]
    if rules.lacks is not None:
        wanted += beyond_flink()
    elif len(names) > _MOST_NAMES:
        names = ()
    plural = RESOURCE_KINDS[kind][1]
    for name in names:
        for sub in ("", "/status", "/scale"):
            wanted += [Right(verb, FLINK_GROUP, plural + sub, name) for verb in _OF_ONE]
    unproved: list[str] = []
    for right in wanted:
        if str(right.of_all()) in found:
            continue
        where = "" if right.is_cluster_wide else namespace
        answer = api.review(right.verb, right.group, right.resource, where, right.name)
        if answer.allowed:
            found[str(right)] = None
        elif answer.error:
            unproved.append(f"{right} ({answer.error})")
    if rules.lacks is not None:
        unproved.append(
            f"rights on other kinds, or on single objects that are not watched ({rules.lacks})"
        )
    elsewhere = _elsewhere(api, namespace, found)
    if elsewhere.lacks is not None:
        unproved.append(f"rights in other namespaces beyond the rules there ({elsewhere.lacks})")
    return Proof(api.url, namespace, len(wanted), tuple(found), tuple(unproved), elsewhere)


def _elsewhere(api: KubernetesApi, namespace: str, known: Container[str]) -> Elsewhere:
    """Read the rules of the account in other namespaces; `known` are the rights it has anyway."""
    others, omitted = _other_namespaces(api, namespace)
    end_s = time.monotonic() + _LOOK_S
    excessive, lacks = [], None
    for number, other in enumerate(others):
        if time.monotonic() > end_s:
            omitted = f"{len(others) - number} more than could be asked about in {_LOOK_S:g} s"
            others = others[:number]
            break
        rules = rules_of(api, other)
        lacks = lacks or rules.lacks
        found = {str(right): None for rule in rules.listed for right in rule.excessive()}
        if rights := tuple(right for right in found if right not in known):
            excessive.append((other, rights))
    return Elsewhere(tuple(others), tuple(excessive), lacks, omitted)


def _other_namespaces(api: KubernetesApi, namespace: str) -> tuple[list[str], str | None]:
    """List the other namespaces to look at, and say why they need not be all."""
    try:
        return [name for name in api.namespaces() if name != namespace], None
    except KubernetesError as error:
        if error.reason not in _NO_ANSWER:
            raise
    own = _namespace_of_pod()
    return [own] if own not in (None, namespace) else [], "the account may not list them"


def _namespace_of_pod() -> str | None:
    """Read where the account of this pod stands; None outside a cluster."""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text("utf-8").strip() or None
    except (OSError, ValueError):
        return None


def check_read_only(
    api: KubernetesApi, namespace: str, kind: str = FLINK_KINDS[0], names: Sequence[str] = ()
) -> Proof:
    """Refuse an account that could write; arguments as for `prove_read_only`.

    Returns:
        What was proved, and what the server could not tell.

    Raises:
        WritableAccountError: The account could write.
        KubernetesError: The server does not say.
    """
    proof = prove_read_only(api, namespace, kind, names)
    if not proof.is_read_only:
        raise WritableAccountError(
            f"{proof}; in shadow mode it must only read",
            reason="Invalid",
            remedy="Take the service account of the shadow manifests, which may get, list and "
            "watch, or take these rights out of the roles that are bound to this one: `kubectl get "
            "rolebindings,clusterrolebindings --all-namespaces --output wide` lists the bindings.",
        )
    return proof


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
    rules = [rule for rule in rules if rule.is_about_flink]
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

    def __init__(self, prove: Callable[[], object], every_s: float | None = None) -> None:
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


def _rule(told: Document) -> Rule:
    """A rule of the server."""
    verbs, groups, resources, names = (
        tuple(str(one) for one in told.get(key) or ())
        for key in ("verbs", "apiGroups", "resources", "resourceNames")
    )
    return Rule(verbs, groups, resources, names)
