"""CHANGELOG.md is what the notes in `changes/` make; each note says what, why, its impact and what is to be done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.running import changelog
from tests.running.changelog import BadNote, Note
from tests.running.tiers import ROOT

pytestmark = pytest.mark.tier("default")  # reads hundreds of files

FIELDS = {
    "what": "`run` does this.",
    "why": "Somebody had lost a night.",
    "impact": "Before, it did that.",
    "migration": "none",
}


def write(directory: Path, name: str = "status.a-change.yaml", **fields: str) -> Path:
    """A note with these fields in place of the usual ones; an empty one is left out."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text("".join(f"{field}: >-\n  {text}\n" for field, text in (FIELDS | fields).items() if text))
    return path


def test_the_changelog_is_what_the_notes_make() -> None:
    """If it isn't: `python -m tests.running.changelog`."""
    assert changelog.PAGE.read_text() == changelog.page()


def test_links_in_notes_lead_to_pages() -> None:
    """Seen from CHANGELOG.md, as they stand there. Those of `why` are seen here alone."""
    for path in changelog.DIRECTORY.rglob("*.yaml"):
        for link in re.findall(r"\]\(\s*([^)#\s]+)", path.read_text()):
            assert "://" in link or (ROOT / link).exists(), f"{path.name}: {link}"


def test_a_note_is_read_with_all_its_fields(tmp_path: Path) -> None:
    assert changelog.read(write(tmp_path)) == Note(**FIELDS)


@pytest.mark.parametrize("field", FIELDS)
def test_a_note_without_one_of_them_is_refused(tmp_path: Path, field: str) -> None:
    with pytest.raises(BadNote, match="what, why, impact, migration"):
        changelog.read(write(tmp_path, **{field: ""}))


@pytest.mark.parametrize(
    ("field", "text"),
    [("what", "none"), ("why", "none"), ("impact", "none"), ("migration", "None."), ("what", "new option")],
)
def test_only_migration_may_be_none_and_all_else_is_sentences(tmp_path: Path, field: str, text: str) -> None:
    path = write(tmp_path, **{field: text})
    if text == "None.":
        assert changelog.read(path).migration == text, "a sentence, which is shown"
        return
    with pytest.raises(BadNote, match=f"{field} must be whole sentences"):
        changelog.read(path)


@pytest.mark.parametrize("name", ["a-change.yaml", "weather.a-change.yaml", "status.a_change.yaml", "status.a.yml"])
def test_a_note_belongs_to_an_area(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadNote, match=r"AREA\.NAME\.yaml"):
        changelog.read(write(tmp_path, name))


def test_unknown_fields_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadNote, match="no others"):
        changelog.read(write(tmp_path, issue="It has a number."))
    path = tmp_path / "status.list.yaml"
    path.write_text("- what\n")
    with pytest.raises(BadNote, match="no others"):
        changelog.read(path)
    write(tmp_path / "changes" / "next")
    with pytest.raises(BadNote, match="next"):
        changelog.page(tmp_path / "changes")


def test_the_newest_release_comes_first_and_what_is_to_be_done_before_all_else(tmp_path: Path) -> None:
    write(tmp_path / "1.9.0", what="It was old.")
    write(tmp_path / "1.10.0", what="It was newer.")
    write(tmp_path / "unreleased", "status.a.yaml", what="It is `eos-replicate status --check` now.")
    write(tmp_path / "unreleased", "status.b.yaml", what="It is renamed.", migration="Use the new name.")
    write(tmp_path / "unreleased", "broker.c.yaml", what="It is faster.")
    text = changelog.page(tmp_path)
    assert re.findall(r"^##+ (.+)$", text, re.MULTILINE) == [
        "Unreleased", changelog.AREAS["status"], changelog.AREAS["broker"],
        "1.10.0", changelog.AREAS["status"], "1.9.0", changelog.AREAS["status"],
    ]  # fmt: skip
    assert text.index("It is renamed. Before, it did that. **To do:** Use the new name.") < text.index("It is `eos")
    assert FIELDS["why"] not in text
    assert text.count("**To do:**") == 1


def test_long_items_are_wrapped_and_commands_stay_whole(tmp_path: Path) -> None:
    command = "`eos-replicate incident resolve 0123456789ab --skip --why reason -c flows.yaml`"
    note = Note(**FIELDS | {"what": f"{'Words ' * 18}{command} {'and more ' * 20}end."})
    lines = note.shown().splitlines()
    assert max(map(len, lines)) <= 120
    assert any(command in line for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
