"""Pins the images of manifests and chart to digests, or checks that they are pinned.

    python deploy/pin.py registry.example/dsp-gym@sha256:... registry.example/dsp-gym-registry@...
    python deploy/pin.py --check
    python deploy/pin.py --runbooks https://docs.example/dsp-gym/alerts/

Needs nothing but Python. Comments in the files stay.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent
FILES = (
    "base/kustomization.yaml",
    "components/policy-from-registry/kustomization.yaml",
    "components/twins/kustomization.yaml",
    "helm/values.yaml",
)
IMAGES = ("dsp-gym", "dsp-gym-twins", "dsp-gym-registry")
ALERTS, VALUES = "monitoring/prometheus-rule.yaml", "helm/values.yaml"

_PINNED = re.compile(
    r"(?P<key>newName|repository): (?P<name>\S+)\n(?P<gap> +)digest: (?P<digest>\S+)"
)
_IMAGE = re.compile(r"(?P<name>[a-z0-9][a-z0-9.:_/-]*)@(?P<digest>sha256:[0-9a-f]{64})")
_NOTHING = "sha256:" + 64 * "0"
_RUNBOOK = re.compile(r"(?<=runbook_url: )\S+(?=#)")
_RUNBOOKS = re.compile(r"(?<=  runbooks: )\S+")
_PAGE = re.compile(r"https?://[A-Za-z0-9._~:/?=&%@+-]+")


def short(name: str) -> str:
    """The last part of an image's name.

    Returns:
        Such as `dsp-gym` for `registry.example/team/dsp-gym`.
    """
    return name.rpartition("/")[2]


def parsed(image: str) -> tuple[str, str]:
    """Name and digest of an image.

    Returns:
        Both, such as `registry.example/dsp-gym` and `sha256:...`.

    Raises:
        ValueError: It has no digest, or is none of the images of this project.
    """
    found = _IMAGE.fullmatch(image)
    if found is None:
        raise ValueError(f"{image!r} is no image with a digest; write REGISTRY/NAME@sha256:...")
    if found["digest"] == _NOTHING:
        raise ValueError(f"{image!r}: no image has a digest of zeros")
    if short(found["name"]) not in IMAGES:
        raise ValueError(f"{image!r} is none of {', '.join(IMAGES)}")
    return found["name"], found["digest"]


def pin(folder: Path, images: list[str]) -> int:
    """Write names and digests into the files that name these images.

    Returns:
        How many places were written.
    """
    wanted = {short(name): (name, digest) for name, digest in map(parsed, images)}
    places = 0

    def written(found: re.Match[str]) -> str:
        nonlocal places
        if short(found["name"]) not in wanted:
            return found[0]
        places += 1
        name, digest = wanted[short(found["name"])]
        return f"{found['key']}: {name}\n{found['gap']}digest: {digest}"

    for file in FILES:
        text = (folder / file).read_text(encoding="utf-8")
        (folder / file).write_text(_PINNED.sub(written, text), encoding="utf-8")
    return places


def name_runbooks(folder: Path, page: str) -> int:
    """Write where the runbooks of the alerts are served, into alerts and chart.

    Args:
        folder: of the manifests.
        page: address of the page that `docs/alerts.md` is built into.

    Returns:
        How many places were written.

    Raises:
        ValueError: It is no address of a page.
    """
    if _PAGE.fullmatch(page) is None:
        raise ValueError(f"{page!r} is no page; write https://docs.example/dsp-gym/alerts/")
    written = 0
    for file, place in ((ALERTS, _RUNBOOK), (VALUES, _RUNBOOKS)):
        text, times = place.subn(page, (folder / file).read_text(encoding="utf-8"))
        (folder / file).write_text(text, encoding="utf-8")
        written += times
    return written


def unpinned(folder: Path) -> list[str]:
    """List the places that still hold the placeholder.

    Returns:
        File and image of each.
    """
    return [
        f"{file}: {found['name']}"
        for file in FILES
        for found in _PINNED.finditer((folder / file).read_text(encoding="utf-8"))
        if found["digest"] == _NOTHING
    ]


def main() -> None:
    """Pin, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", nargs="*", metavar="REGISTRY/NAME@sha256:...")
    parser.add_argument("--check", action="store_true", help="end with 1 where one is not pinned")
    parser.add_argument("--runbooks", metavar="URL", help="of the page built of docs/alerts.md")
    parser.add_argument("--folder", type=Path, default=DEPLOY, help="of the manifests")
    asked = parser.parse_args()
    if asked.check == bool(asked.images or asked.runbooks):
        parser.error("give images, --runbooks, or --check")
    if asked.check:
        if missing := unpinned(asked.folder):
            sys.exit("not pinned: " + "; ".join(missing))
        return
    try:
        places = pin(asked.folder, asked.images)
        if asked.runbooks is not None:
            places += name_runbooks(asked.folder, asked.runbooks)
    except ValueError as error:
        parser.error(str(error))
    sys.stdout.write(f"{places} places pinned\n")


if __name__ == "__main__":
    main()
