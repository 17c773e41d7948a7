"""Resources of one kind, followed in a thread: listed, then watched, whatever the server does.

The client's informer does not work for custom resources (client 37), so this is a separate loop:
list, watch from the version of the list with bookmarks, and list again where the server has
forgotten. A list is authoritative: what changed while the server was away is seen there only.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from dsp_gym.backends.kubernetes.api import KubernetesApi, Watch
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import KubernetesError
from dsp_gym.loop.watchers import keep_watching

_LEAST_WAIT_S, _MOST_WAIT_S = 0.5, 30.0


class Watcher:
    """Follows resources until it is closed; errors are counted and told, never raised.

    Args:
        api: the server.
        kind: FlinkDeployment or FlinkSessionJob.
        namespace: where they stand.
        selector: labels they have; none: any.
        clock: seconds that only go forward.
        name: of the only one that is followed; none: every one.
        watch_s: length of one watch, s.
        least_wait_s: first wait after an error, s; it doubles, with jitter, up to 30 s.
    """

    def __init__(
        self,
        api: KubernetesApi,
        kind: str,
        namespace: str,
        selector: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        name: str | None = None,
        watch_s: int = 30,
        least_wait_s: float = _LEAST_WAIT_S,
    ) -> None:
        self._api, self._kind, self._namespace = api, kind, namespace
        self._selector, self._name, self._watch_s = selector, name, watch_s
        self._clock, self._least_wait_s = clock, least_wait_s
        self.errors: Counter[str] = Counter()
        """How often something went wrong, by the reason of the error."""
        self.lists = 0
        """How often everything was listed."""
        self.trouble: KubernetesError | None = None
        """What is wrong now."""
        self._lock = threading.Lock()
        self._resources: dict[str, FlinkResource] = {}
        self._heard_s = float("-inf")
        self._version: str | None = None  # to watch from; None: list first
        self._stream: Watch | None = None
        self._listed, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._keep, name=f"watch-{kind}-{namespace}", daemon=True
        )
        self._thread.start()

    @property
    def is_following(self) -> bool:
        """Whether the thread that follows the server runs; a closed watcher's ends."""
        return self._thread.is_alive()

    def resources(self) -> dict[str, FlinkResource]:
        """The watched resources.

        Returns:
            The last known version of each, by name.
        """
        with self._lock:
            return dict(self._resources)

    def age_s(self) -> float:
        """Time since the server was last heard of.

        Returns:
            Seconds; infinite before the first answer.
        """
        return self._clock() - self._heard_s

    def wait(self, timeout_s: float) -> bool:
        """Wait until everything was listed once; False where that took too long.

        Returns:
            True where the first listing is complete.
        """
        return self._listed.wait(timeout_s)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.stop()
        self._thread.join(1.0)  # a call that hangs ends by its own time limit, a daemon until then

    def _keep(self) -> None:
        wait_s = self._least_wait_s
        keep_watching("resources", self._follow, self._closing, tell=self._afresh, wait_s=wait_s)

    def _afresh(self, said: str) -> None:
        """List anew: what came between is not known."""
        self._version = None
        self.errors["Other"] += 1
        self.trouble = KubernetesError(said, reason="Other")

    def _follow(self) -> None:
        wait_s = self._least_wait_s
        while not self._closing.is_set():
            try:
                if self._version is None:
                    self._list()
                self._watch()
                wait_s = self._least_wait_s
            except KubernetesError as error:
                if self._closing.is_set():
                    return
                self.errors[error.reason] += 1
                if error.reason == "Gone":
                    self._version = None  # it has forgotten; nothing is wrong
                    if self._closing.wait(random.uniform(0, self._least_wait_s)):
                        return
                    continue
                self.trouble = error
                if self._closing.wait(wait_s * random.uniform(0.5, 1.0)):
                    return
                wait_s = min(2 * wait_s, _MOST_WAIT_S)

    def _list(self) -> None:
        items, version = self._api.list(
            self._kind, namespace=self._namespace, selector=self._selector, name=self._name
        )
        known = [FlinkResource.parse({"kind": self._kind, **item}) for item in items]
        with self._lock:
            self._resources = {one.name: one for one in known}
        self.lists += 1
        self._heard()
        self._version = version
        self._listed.set()

    def _watch(self) -> None:
        assert self._version is not None
        stream = self._api.watch(
            self._kind,
            namespace=self._namespace,
            selector=self._selector,
            name=self._name,
            since=self._version,
            timeout_s=self._watch_s,
        )
        with self._lock:
            self._stream = stream
        if self._closing.is_set():
            stream.stop()
        try:
            self._heard()
            for what, body in stream:
                self._heard()
                self._take(what, body)
            self._heard()
        finally:
            with self._lock:
                self._stream = None

    def _take(self, what: str, body: Document) -> None:
        resource = FlinkResource.parse({"kind": self._kind, **body})
        self._version = resource.resource_version or self._version
        if what == "BOOKMARK":
            return
        with self._lock:
            if what == "DELETED":
                self._resources.pop(resource.name, None)
            else:
                self._resources[resource.name] = resource

    def _heard(self) -> None:
        self._heard_s, self.trouble = self._clock(), None
