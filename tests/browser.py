"""A tab of a real headless Chromium, the system's own: Playwright drives it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from playwright.sync_api import ConsoleMessage, Error, sync_playwright

__all__ = ["BROWSER", "CONTRASTS", "Browser", "executable", "looks"]

WAIT_MS = 60_000


def executable() -> str | None:
    """Path of a Chromium; None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


BROWSER = pytest.mark.skipif(
    executable() is None and "CI" not in os.environ, reason="no Chromium on the PATH"
)
"""For tests that need a browser. In CI a missing one is a failure."""


SCHEMES = ("light", "dark")


def looks(*widths: int) -> list[Any]:
    """Widths, px, and colour schemes of a page, for `pytest.mark.parametrize`.

    Widths decide where things stand, schemes their colours: `make test` opens every width, and both
    schemes by turns; `make validate` the other half.
    """
    return [
        pytest.param(
            width, scheme, marks=pytest.mark.validate if (number + which) % 2 else (),
            id=f"{width}-{scheme}",
        )
        for number, width in enumerate(widths)
        for which, scheme in enumerate(SCHEMES)
    ]  # fmt: skip


CONTRASTS = """(() => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map((c) => c / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll('p, td, th, .unit, .key, [class^=is-]')].map((one) => {
    const ink = light(getComputedStyle(one).color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  });
})()"""
"""Contrast of every text with the paper: WCAG's AA asks for 4.5."""


SCREENSHOTS = "DSP_GYM_SCREENSHOTS"
"""Names the folder where pictures of the pages are kept; build/screenshots if it is not set."""


class Browser:
    """One tab of a browser of its own; use as a context manager."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        """What the page complained of: exceptions, and errors on its console."""

    def __enter__(self) -> Browser:
        found = executable()
        assert found is not None, "no Chromium: apt-get install chromium"
        self.driver = sync_playwright().start()
        # A sandbox needs privileges that a container's root lacks; every page here is our own.
        self.process = self.driver.chromium.launch(
            executable_path=found, chromium_sandbox=False, args=["--disable-gpu"]
        )
        self.page = self.process.new_page()
        self.page.on("pageerror", self._note_exception)
        self.page.on("console", self._note_message)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.close()
        self.driver.stop()

    def open(self, url: str) -> None:
        """Go to a page; `errors` are its own from here on."""
        self.page.goto("about:blank")
        self.errors.clear()
        self.page.goto(url, wait_until="commit")

    def run(self, expression: str) -> object:
        """The value of an expression in the page."""
        return self.page.evaluate(expression)

    def keep_picture(self, name: str) -> Path:
        """A picture of the whole page, for people who look at pages after the tests.

        Args:
            name: Of the page, its width and scheme; a picture of that name is replaced.

        Returns:
            The file.
        """
        build = Path(__file__).parents[1] / "build" / "screenshots"
        file = Path(os.environ.get(SCREENSHOTS) or build) / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        assert self.page.screenshot(path=file, full_page=True)
        return file

    def wait_for(self, selector: str) -> None:
        """Waits until the page has such an element, over a change of page too.

        By selector, because the page's own content security policy forbids to poll an expression.
        """
        self.page.locator(selector).first.wait_for(state="attached", timeout=WAIT_MS)

    def _note_exception(self, error: Error) -> None:
        self.errors.append(str(error))

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)
