"""Readers of answers: of Flink, Prometheus and Kubernetes, and of snapshots on the wire."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from dsp_gym.backends.flink.backend import FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.prometheus_api import PrometheusApi
from dsp_gym.backends.flink.rescale.justin import JustinActuator
from dsp_gym.backends.flink.rescale.preflight import check_memory, check_slots
from dsp_gym.backends.flink.rescale.running import (
    RunningJob,
    outage_of_redeploy_s,
    outage_of_rescale_s,
)
from dsp_gym.backends.flink.rescale.savepoints import Stop, newest_checkpoint
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.rest_samples import RestSamples
from dsp_gym.backends.kubernetes.access import missing_rights, prove_read_only
from dsp_gym.backends.kubernetes.api import KubernetesApi, Watch
from dsp_gym.backends.kubernetes.collector import KubernetesSamples
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.connection import resources_at
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.overrides import levels_in
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.backends.kubernetes.token_file import TokenFile
from dsp_gym.backends.upstream.session import RawAnswer
from dsp_gym.cli.decide import _parsed
from dsp_gym.control.config import WindowConfig
from dsp_gym.errors import DspGymError
from dsp_gym.loop.snapshot_stream import SnapshotReader
from dsp_gym.loop.wire import decision_from_json, snapshot_from_json
from tests.flink_resources import MAP, deployment, stable
from tests.fuzz.cases import as_json
from tests.fuzz.documents import cluster, series, snapshot_document
from tests.fuzz.readers import Reader, file_of, json_reader
from tests.simulating import line

__all__ = ["READERS"]


def each(*calls: Callable[[], object]) -> list[object]:
    """What each call gives; an error of ours is a result, too."""
    found: list[object] = []
    for call in calls:
        try:
            found.append(call())
        except DspGymError as error:
            found.append(str(error))  # the error itself would keep what it was made from
    return found


# The wire


def _snapshot(data: bytes) -> object:
    return snapshot_from_json([_parsed(data.decode("utf-8", "replace"), "line 1")])


@cache
def _known() -> SnapshotReader:
    return SnapshotReader("request")


def _snapshot_known(document: Any) -> object:
    _known().read(snapshot_document())
    return _known().read(document)


def _decision(document: Any) -> object:
    topology = snapshot_from_json([snapshot_document()]).topology
    return decision_from_json([document], topology)


def _decision_document() -> dict[str, Any]:
    seen = snapshot_document()
    vertices = [
        {"name": vertex["name"], "parallelism": 2, "memory_level": 0} for vertex in seen["vertices"]
    ]
    return {
        "schema": "dsp-gym/decision/1",
        "job": seen["job"],
        "t_s": 60.0,
        "changed": True,
        "reason": "more",
        "vertices": vertices,
        "proposed": None,
        "interventions": [{"guardrail": "cool_down", "reason": "rests"}],
    }


WIRE = [
    Reader("snapshot", _snapshot, lambda: [as_json(snapshot_document())]),
    json_reader("snapshot of a known job", _snapshot_known, snapshot_document),
    json_reader("decision", _decision, _decision_document),
]


# Flink


class _Session:
    """Answers as a cluster would, without one."""

    def __init__(self, answer: Callable[[str], bytes]) -> None:
        self._answer = answer

    def ask(self, method: str, url: str, timeout_s: float, **kwargs: Any) -> RawAnswer:
        return RawAnswer(200, self._answer(urlsplit(url).path), {})


def _rest(answer: Callable[[str], bytes]) -> FlinkRest:
    rest = FlinkRest("http://flink:8081")
    rest.session = _Session(answer)  # type: ignore[assignment]
    return rest


def _asked(rest: FlinkRest) -> object:
    """Everything that is asked of a cluster."""
    spec = line()
    running: list[RunningJob] = []

    def find() -> None:
        running.append(RunningJob.find(rest, "mine", spec))
        for job in running:
            check_slots(rest, job, job.configuration)
            check_memory(rest, job, job.configuration, spec)

    stop = Stop(rest, "a1", "/s", None, "t1")
    justin = JustinActuator.__new__(JustinActuator)
    justin.rest, justin.spec = rest, spec
    return each(
        rest.jobs,
        rest.taskmanagers,
        rest.free_slots,
        find,
        lambda: rest.arguments("a1"),
        lambda: rest.exceptions("a1"),
        lambda: rest.state("a1"),
        lambda: rest.savepoint("a1", "t1"),
        lambda: rest.stop_with_savepoint("a1", "/s"),
        lambda: rest.run_jar("j1", "Main", []),
        lambda: rest.resource_requirements("a1"),
        lambda: rest.wait_for("a1", ("RUNNING",), 0.0),
        lambda: newest_checkpoint(rest, "a1"),
        lambda: outage_of_redeploy_s(rest, "a1", "a1"),
        lambda: outage_of_rescale_s(rest, "a1"),
        lambda: justin._levels(running[0], justin._requirements("a1")) if running else None,
        stop.left_behind,
        stop.look,
    )


def _one_answer(data: bytes) -> object:
    return _asked(_rest(lambda path: data))


def _of_answers(answers: Any, use: Callable[[FlinkRest], object]) -> object:
    if not isinstance(answers, dict):
        return None
    texts = {path: as_json(answer) for path, answer in answers.items()}
    return use(_rest(lambda path: texts.get(path, b'{"errors": []}')))


def _collected(rest: FlinkRest) -> object:
    spec = line()
    job = FlinkJob(rest, "mine", spec)
    source = RestSamples(rest, job, spec, clock=lambda: 1100.0, pause_s=0.0)
    collector = FlinkCollector(spec, job, source, WindowConfig(window_s=30))
    return each(collector.poll, lambda: collector.look(1100.0), collector.snapshot)


FLINK = [
    Reader(
        "answer of Flink",
        _one_answer,
        lambda: [as_json(one) for one in cluster().values()],
        share=0.4,
    ),
    json_reader(
        "answers of Flink",
        lambda answers: _of_answers(answers, _asked),
        cluster,
        share=0.4,
        is_bounded=False,
    ),
    json_reader(
        "job of Flink",
        lambda answers: _of_answers(answers, _collected),
        cluster,
        share=0.4,
        is_bounded=False,
    ),
]


# Prometheus


def _prometheus(data: bytes) -> object:
    job: Any = SimpleNamespace(names=("a",), ids=("a1",), job_id="a1")
    ours = PrometheusSamples("http://prometheus", job, line())
    counted = KubernetesSamples("http://prometheus", job, line())
    for one in (ours, counted):
        answer_with(one._api, data)
    return each(
        lambda: ours.samples(0.0, 100.0),
        lambda: counted.tasks("a1", 0.0, 100.0),
        lambda: counted.advice("jobs", "words", 0.0, 100.0),
    )


def answer_with(api: PrometheusApi, content: bytes) -> None:
    """Let every question to a server be answered alike."""
    api.session.mount("http://prometheus", _Answers(content))


class _Answers(HTTPAdapter):
    """A connection to a web server that answers all alike."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = content

    def send(self, request: PreparedRequest, *_: Any, **__: Any) -> Response:
        answer = Response()
        answer.status_code, answer.url, answer.request = 200, str(request.url), request
        answer.raw = io.BytesIO(self._content)
        return answer


# Kubernetes


def _resource_document() -> dict[str, Any]:
    made = deployment(overrides={MAP: 2}, configuration={"job.autoscaler.enabled": "true"})
    made["metadata"] |= {
        "uid": "u",
        "resourceVersion": "7",
        "generation": 1,
        "annotations": {"dsp-gym.io/epoch": "3", "dsp-gym.io/holder": "me"},
    }
    made["spec"]["job"]["args"] = ["--program", "wordcount", "--managed-mib", "map=316"]
    return made | {"status": stable(made)}


def _resource(body: Any) -> object:
    if not isinstance(body, dict):
        return None
    one = FlinkResource.parse(body)
    return each(
        one.reason_not_to_act,
        lambda: one.patch_for({MAP: 3}),
        lambda: levels_in(one.effective_arguments, line()),
        lambda: str(one),
    )


class _Response:
    """An answer of an API server, or a stream of changes."""

    status = 200

    def __init__(self, content: bytes) -> None:
        self.data = content

    def stream(self, decode_content: bool) -> Iterator[bytes]:
        for at in range(0, len(self.data), 1000):
            yield self.data[at : at + 1000]

    def close(self) -> None:
        return


def _api(data: bytes, status: int = 200) -> KubernetesApi:
    api = KubernetesApi.__new__(KubernetesApi)
    api.url, api._read_s, api._connect_s = "https://server", 1.0, 1.0
    answer = _Response(data)
    answer.status = status
    api._send = lambda *_, **__: (answer, answer.data)  # type: ignore[method-assign, assignment]  # no socket
    return api


def _server(data: bytes) -> object:
    api = _api(data)
    lease = Lease(api, "jobs", "words", "me")
    place = KubernetesPlace(namespace="jobs", name="words")
    if b'"continue"' in data:  # a list that goes on and on
        data = data.replace(b'"continue"', b'"ends"')
        api = _api(data)
    return each(
        lambda: api.get("FlinkDeployment", "jobs", "words"),
        lambda: api.list("FlinkDeployment", namespace="jobs"),
        lambda: resources_at(api, place),
        lambda: api.may("patch", "FlinkDeployment", "jobs"),
        lambda: prove_read_only(api, "jobs", names=("words",)),
        lambda: missing_rights(api, "FlinkDeployment", "jobs"),
        lease.try_acquire,
        lambda: lease.is_held_now(1.0),
        lease.release,
        lambda: _api(data, 409).get("Lease", "jobs", "words"),
    )


def _answers_of_server() -> list[bytes]:
    lease = {
        "metadata": {
            "name": "words",
            "resourceVersion": "1",
            "managedFields": [{"manager": "dsp-gym"}],
        },
        "spec": {
            "holderIdentity": "other",
            "leaseDurationSeconds": 30,
            "leaseTransitions": 2,
            "acquireTime": "2026-01-01T00:00:00Z",
        },
    }
    rules = {
        "status": {
            "allowed": True,
            "incomplete": False,
            "resourceRules": [
                {
                    "verbs": ["get", "patch"],
                    "apiGroups": ["flink.apache.org"],
                    "resources": ["flinkdeployments"],
                    "resourceNames": ["words"],
                }
            ],
        }
    }
    listed = {"metadata": {"resourceVersion": "9"}, "items": [_resource_document()]}
    refusal = {"kind": "Status", "message": "no", "code": 409, "reason": "Conflict"}
    return [as_json(one) for one in (lease, rules, listed, refusal)]


def _watched(data: bytes) -> object:
    return list(Watch(_Response(data), "https://server/watch", 5.0))  # type: ignore[arg-type]


def _changes() -> list[bytes]:
    events = [
        {"type": "ADDED", "object": _resource_document()},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}},
    ]
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    return [b"".join(as_json(event) + b"\n" for event in events), as_json(gone) + b"\n"]


def _lines(tree: Any) -> bytes:
    return b"".join(as_json(one) + b"\n" for one in (tree if isinstance(tree, list) else [tree]))


KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: c
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: abc, tokenFile: token}}]
contexts: [{name: c, context: {cluster: k, user: u, namespace: jobs}}]
"""


def _kubeconfig(data: bytes) -> object:
    file = file_of("kubeconfig", data)
    return KubernetesApi.connect(KubernetesPlace(kubeconfig=file, namespace="jobs", name="words"))


def _token(data: bytes) -> object:
    token, settings = TokenFile(file_of("token", data)), SimpleNamespace(api_key={})
    token(settings)
    return token.trouble


KUBERNETES = [
    json_reader("resource of Kubernetes", _resource, _resource_document),
    Reader("answer of Kubernetes", _server, _answers_of_server, share=0.4),
    Reader(
        "changes of Kubernetes",
        _watched,
        _changes,
        _lines,
        lambda data: [json.loads(line) for line in data.splitlines()],
    ),
    Reader(
        "kubeconfig",
        _kubeconfig,
        lambda: [KUBECONFIG],
        as_json,
        lambda data: __import__("yaml").safe_load(data),
        share=0.4,
    ),
    Reader("token of Kubernetes", _token, lambda: [b"abc\n"], None),
]

PROMETHEUS = [Reader("answer of Prometheus", _prometheus, lambda: [as_json(series())], reads=3)]

READERS: list[Reader] = [*WIRE, *FLINK, *PROMETHEUS, *KUBERNETES]
