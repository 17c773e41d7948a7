"""Rights with which an account could change a job, or become an account that can.

Kubernetes lists the ways from a right to another account in "Role Based Access Control Good
Practices": pods and what makes pods, exec, proxies, secrets, tokens, impersonation, roles,
webhooks, signed certificates. A WebSocket asks for `pods/exec` with GET, which RBAC calls `get`; a
proxied GET reaches every path of Flink's REST interface. So these count although they only get.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsp_gym.backends.kubernetes.api import RESOURCE_KINDS

READS = ("get", "list", "watch")
WRITES = ("create", "update", "patch", "delete", "deletecollection")

FLINK_GROUP = RESOURCE_KINDS["FlinkDeployment"][0].partition("/")[0]
FLINK_KINDS = ("FlinkDeployment", "FlinkSessionJob")

_KIND_OF = {RESOURCE_KINDS[kind][1]: kind for kind in FLINK_KINDS}
_EDITS = ("update", "patch")
_PROXY = ("get", *WRITES[:-1])
_CONNECT = ("get", "create")
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource, as rules and access reviews name them."""

    verb: str
    group: str  # of the API; "" is the core, * every one
    resource: str  # such as pods/exec; * is every one, */scale every one's scale
    name: str | None = None  # of the only object; None: every one
    is_cluster_wide: bool = False  # whether its objects stand in no namespace

    def __str__(self) -> str:
        plural, slash, sub = self.resource.partition("/")
        kind = _KIND_OF.get(plural)
        suffix = f".{self.group}" if self.group not in ("", "*") and not kind else ""
        named = "" if self.name is None else f" '{self.name}'"
        return f"{self.verb} {kind or plural}{suffix}{slash}{sub}{named}"

    def of_all(self) -> Right:
        """Widen it from one object to every one."""
        return replace(self, name=None)

    @property
    def is_excessive(self) -> bool:
        """Whether an account that must only read may not have it."""
        if self.verb in READS:
            return any(self._covers(read) for read in _TELLING_READS)
        return not self._is_harmless()

    def _covers(self, other: Right) -> bool:
        """Whether a rule with this right grants the other one."""
        sub = other.resource.partition("/")[2]
        return (
            self.verb in (other.verb, "*")
            and self.group in (other.group, "*")
            and self.resource in (other.resource, "*", *([f"*/{sub}"] if sub else []))
        )

    def _is_harmless(self) -> bool:
        """Whether it only asks a question, or a distribution grants it to readers."""
        if self.verb == "create" and self.group in _REVIEWING:
            return self.resource.endswith("reviews")
        return (self.verb, self.resource) in _OF_EVERYBODY.get(self.group, ())


_REVIEWING = ("authorization.k8s.io", "authentication.k8s.io", "authorization.openshift.io")
"""Groups whose reviews answer a question, such as SelfSubjectAccessReview, and change nothing."""

_OPENSHIFT_BUILDS = frozenset(
    {("create", "buildconfigs/webhooks")}
    | {("create", f"builds/{way}") for way in ("docker", "optimizeddocker", "source")}
    | {("create", "builds/jenkinspipeline")}
)
_OPENSHIFT_TOKENS = frozenset(("delete", f"oauth{kind}tokens") for kind in ("access", "authorize"))
_OPENSHIFT_REVIEWS = frozenset({("create", "selfsubjectrulesreviews")})

_OF_EVERYBODY: dict[str, frozenset[tuple[str, str]]] = {
    "": _OPENSHIFT_BUILDS | _OPENSHIFT_TOKENS | _OPENSHIFT_REVIEWS,
    "build.openshift.io": _OPENSHIFT_BUILDS,
    "oauth.openshift.io": _OPENSHIFT_TOKENS,
    "authentication.k8s.io": frozenset(
        {("impersonate", "userextras/scopes.authorization.openshift.io")}
    ),
    "security.openshift.io": frozenset({("use", "securitycontextconstraints")}),
    "policy": frozenset({("use", "podsecuritypolicies")}),
    "monitoring.coreos.com": frozenset(
        {("create", "prometheuses/api"), ("update", "prometheuses/api")}
    ),
}
"""What OpenShift grants to every account, by group (its bootstrap policy has them in the core group
too), what pods of an account need to be started, and what readers of its metrics have. Each needs
another right before it does anything; a scope only narrows what an account may. No API server has
`prometheuses/api`: the proxy before Prometheus asks for it, `create` being the HTTP method POST
of a long query."""

_TELLING_READS = (
    *(Right(verb, "", "secrets") for verb in READS),
    *(Right("get", "", f"pods/{sub}") for sub in ("exec", "attach", "portforward", "proxy")),
    *(Right("get", "", f"{plural}/proxy") for plural in ("services", "nodes")),
)
"""Rights that get, and yet give away tokens or run something."""

_IN_NAMESPACES = {
    FLINK_GROUP: ("flinkstatesnapshots", "flinkbluegreendeployments"),
    "": (
        *("pods", "services", "configmaps", "secrets", "serviceaccounts", "endpoints"),
        *("replicationcontrollers", "persistentvolumeclaims", "resourcequotas", "limitranges"),
    ),
    "apps": ("deployments", "statefulsets", "replicasets", "daemonsets"),
    "batch": ("jobs", "cronjobs"),
    "autoscaling": ("horizontalpodautoscalers",),
    "coordination.k8s.io": ("leases",),
    "discovery.k8s.io": ("endpointslices",),
    "networking.k8s.io": ("networkpolicies", "ingresses"),
    "policy": ("poddisruptionbudgets",),
    _RBAC: ("roles", "rolebindings"),
}
"""Resources that no reader writes, by group; those of Flink are asked for one by one."""

_OF_THE_CLUSTER = {
    "": ("namespaces", "nodes", "persistentvolumes"),
    _RBAC: ("clusterroles", "clusterrolebindings"),
    _ADMISSION: (
        *("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
        *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        *("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
    ),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    "apiregistration.k8s.io": ("apiservices",),
    "certificates.k8s.io": ("certificatesigningrequests",),
}

_SINGLE = (
    (_CONNECT, "", ("pods/exec", "pods/attach", "pods/portforward"), False),
    (_PROXY, "", ("pods/proxy", "services/proxy"), False),
    (_PROXY, "", ("nodes/proxy",), True),
    (("create",), "", ("pods/eviction", "pods/binding", "serviceaccounts/token"), False),
    (READS, "", ("secrets",), False),
    (_EDITS, "", ("pods/ephemeralcontainers", "pods/resize", "pods/status"), False),
    (_EDITS, "", ("services/status", "replicationcontrollers/scale"), False),
    (
        _EDITS,
        "apps",
        tuple(f"{p}/{s}" for p in _IN_NAMESPACES["apps"] for s in ("scale", "status")),
        False,
    ),
    (_EDITS, "batch", ("jobs/status", "cronjobs/status"), False),
    (("impersonate",), "", ("serviceaccounts",), False),
    (("impersonate",), "", ("users", "groups"), True),
    (("impersonate",), "authentication.k8s.io", ("userextras", "uids"), True),
    (("escalate", "bind"), _RBAC, ("roles",), False),
    (("escalate", "bind"), _RBAC, ("clusterroles",), True),
    (_EDITS, "", ("namespaces/finalize", "nodes/status"), True),
    (("update", "patch"), "certificates.k8s.io", ("certificatesigningrequests/approval",), True),
    (("approve", "sign"), "certificates.k8s.io", ("signers",), True),
)


def of_flink() -> Iterator[Right]:
    """Every write to the resources that hold jobs.

    Yields:
        Rights on the resources, their status and their scale.
    """
    for sub in ("", "/status", "/scale"):
        for kind in FLINK_KINDS:
            for verb in WRITES:
                yield Right(verb, FLINK_GROUP, f"{RESOURCE_KINDS[kind][1]}{sub}")


def beyond_flink() -> Iterator[Right]:
    """Every other known right with which an account could change a job in the end.

    Yields:
        Rights, each of which alone makes an account more than a reader.
    """
    for resources, is_cluster_wide in ((_IN_NAMESPACES, False), (_OF_THE_CLUSTER, True)):
        for group, plurals in resources.items():
            for plural in plurals:
                for verb in WRITES:
                    yield Right(verb, group, plural, is_cluster_wide=is_cluster_wide)
    for verbs, group, listed, is_cluster_wide in _SINGLE:
        for resource in listed:
            for verb in verbs:
                yield Right(verb, group, resource, is_cluster_wide=is_cluster_wide)
