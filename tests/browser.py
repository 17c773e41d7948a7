"""A real headless Chromium, driven over its DevTools protocol: open a page, run an expression."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from websocket import WebSocket, create_connection

__all__ = ["BROWSER", "Browser", "executable"]

START_S = 60.0
NAVIGATED = -32000
"""The code of an answer whose page went while it was asked: DevTools' "server error"."""


class PageGone(AssertionError):
    """What was asked of a page that another took the place of meanwhile."""


def executable() -> str | None:
    """Path of a Chromium; None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


BROWSER = pytest.mark.skipif(
    executable() is None and "CI" not in os.environ, reason="no Chromium on the PATH"
)
"""For tests that need a browser. In CI a missing one is a failure."""


class Browser:
    """One tab of a browser of its own; use as a context manager."""

    def __init__(self) -> None:
        found = executable()
        assert found is not None, "no Chromium: apt-get install chromium"
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        line = [
            found, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-extensions",
            "--remote-debugging-port=0", f"--user-data-dir={self._folder.name}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        """What the page complained of: exceptions, and errors on its console."""
        try:
            self._link = self._connected()
            for domain in ("Page", "Runtime", "Log"):
                self._call(f"{domain}.enable")
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()
        self._end()

    def open(self, url: str) -> None:
        """Go to a page; `errors` are its own from here on."""
        self.errors.clear()
        self._call("Page.navigate", url=url)

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, expression: str, timeout_s: float = 60.0) -> Any:
        """Waits until an expression is true, over a change of page too; returns its value."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(PageGone):
                if value := self.run(expression):
                    return value
            time.sleep(0.1)
        raise AssertionError(f"not within {timeout_s:g} s: {expression}")

    def _connected(self) -> WebSocket:
        file = Path(self._folder.name) / "DevToolsActivePort"
        deadline = time.monotonic() + START_S
        while not (file.exists() and file.read_text().count("\n")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("Chromium did not start")
            time.sleep(0.05)
        port = file.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
            tabs = json.load(answer)
        page = next(tab for tab in tabs if tab["type"] == "page")
        return create_connection(page["webSocketDebuggerUrl"], timeout=60, suppress_origin=True)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._link.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._link.recv())
            if message.get("id") == number:
                if "error" in message:
                    gone = message["error"]["code"] == NAVIGATED
                    raise (PageGone if gone else AssertionError)(message)
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._folder.cleanup()
