"""Writes CHANGELOG.md from the notes in `changes/`: one file for each change, `changes/unreleased/AREA.NAME.yaml`.

Run as `python -m tests.running.changelog`. A release moves the notes to `changes/X.Y.Z/` (CONTRIBUTING.md). The usual
tools don't fit: towncrier knows one text a change, and scriv puts parts of different changes under one heading, while
here the four fields of a change belong together.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import yaml
from jinja2 import Environment, StrictUndefined

from tests.running.tiers import ROOT

DIRECTORY = ROOT / "changes"
PAGE = ROOT / "CHANGELOG.md"
UNRELEASED = "unreleased"
NONE = "none"
AREAS = {
    "operating": "Commands and operation",
    "copying": "Copying",
    "batches": "Engine batches",
    "workers": "Workers that share a flow",
    "incidents": "Incidents and decisions",
    "failover": "Failover",
    "groups": "Consumer groups and schemas",
    "map": "Offset map, verify and translate",
    "reconcile": "Reconcile",
    "repair": "Repair",
    "spark": "Backfill and Spark",
    "status": "Status, plan and the status page",
    "metrics": "Metrics and alerts",
    "log": "Log",
    "broker": "Embedded broker",
    "deploy": "Package, image and deployment",
    "docs": "Documentation and demos",
}
"""What the name of a note begins with → the heading under which it stands, in this order."""
_WIDTH = 120
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_NAME = re.compile(r"([a-z]+)\.[a-z0-9-]+")
_WHOLE = re.compile(r"`[^`]+`|\*\*To do:\*\*")
_SENTENCES = re.compile(r"[A-Z`*\[\d].*\.\)?\**", re.DOTALL)
_PAGE = """\
# Changelog

Written by `python -m tests.running.changelog` from the notes in `changes/`, which also say why each change was made.
{% for release in releases %}

## {{ release.heading }}
{% for heading, notes in release.areas %}

### {{ heading }}

{% for note in notes %}
{{ note }}
{% endfor %}
{% endfor %}
{% endfor %}
"""


class BadNote(Exception):
    """A file of `changes/` is no note, and why."""


@dataclass(frozen=True)
class Note:
    """What has changed, why, what that means to users, and what they have to do (`none`: nothing)."""

    what: str
    why: str
    impact: str
    migration: str

    def shown(self) -> str:
        """Its item of the list. Why is for those who look at the note."""
        text = f"{self.what} {self.impact}"
        if self.migration != NONE:
            text += f" **To do:** {self.migration}"
        whole = _WHOLE.sub(lambda code: code[0].replace(" ", "\0"), text)  # commands stay on one line
        lines = textwrap.wrap(whole, _WIDTH - 2, break_long_words=False, break_on_hyphens=False)
        return "- " + "\n  ".join(lines).replace("\0", " ")


@dataclass(frozen=True)
class Release:
    """All notes of one directory, under the headings of their areas."""

    heading: str
    areas: list[tuple[str, list[str]]]


def read(path: Path) -> Note:
    """One note. Raises BadNote if its name or one of its fields is wrong."""
    name = _NAME.fullmatch(path.stem)
    if path.suffix != ".yaml" or name is None or name[1] not in AREAS:
        raise BadNote(f"{path}: the name must be AREA.NAME.yaml, with one of the areas {', '.join(AREAS)}")
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    wanted = [field.name for field in fields(Note)]
    if not isinstance(loaded, dict) or sorted(loaded) != sorted(wanted):
        raise BadNote(f"{path}: it must have the fields {', '.join(wanted)}, and no others")
    for field, text in loaded.items():
        if field == "migration" and text == NONE:
            continue
        if not isinstance(text, str) or not _SENTENCES.fullmatch(text.strip()):
            raise BadNote(f"{path}: {field} must be whole sentences")
    return Note(**{field: " ".join(text.split()) for field, text in loaded.items()})


def _releases(directory: Path) -> Iterator[Release]:
    """What isn't released yet, then the newest release first."""
    places = [place for place in directory.iterdir() if place.is_dir()]
    odd = [place.name for place in places if place.name != UNRELEASED and not _RELEASE.fullmatch(place.name)]
    if odd:
        raise BadNote(f"{directory}: {odd} are neither {UNRELEASED} nor releases X.Y.Z")
    released = [place for place in places if place.name != UNRELEASED]
    released.sort(key=lambda place: tuple(map(int, place.name.split("."))), reverse=True)
    for place in [place for place in places if place.name == UNRELEASED] + released:
        notes: dict[str, list[Note]] = {area: [] for area in AREAS}
        for path in sorted(place.iterdir()):
            note = read(path)  # before its area is looked up
            notes[path.name.partition(".")[0]].append(note)
        for found in notes.values():
            found.sort(key=lambda note: note.migration == NONE)  # first where there is something to do
        areas = [(AREAS[area], [note.shown() for note in found]) for area, found in notes.items() if found]
        yield Release(place.name if place in released else "Unreleased", areas)


def page(directory: Path = DIRECTORY) -> str:
    """The whole text of CHANGELOG.md."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    return environment.from_string(_PAGE).render(releases=list(_releases(directory)))


def main() -> None:
    """Write it."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
