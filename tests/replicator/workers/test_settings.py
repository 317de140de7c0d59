"""Whose flow file holds: the file proposes, the control topic decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.config import Flow, load
from replicator.workers.settings import (
    FINISH_AFTER_S,
    NOT_STORED,
    NOTHING_SEEN,
    FileDecision,
    OpenSettings,
    OwnFile,
    Runs,
    canonical,
    decide,
    settings_hash,
)

FILE = """
clusters:
  west: {{properties: {{bootstrap.servers: "{servers}"}}}}
  east: {{properties: {{bootstrap.servers: "localhost:9093"}}}}
flows:
  orders:
    source: {source}
    target: east
    topics: [orders]
    {more}
"""


def hashed(path: Path, *, servers: str = "localhost:9092", source: str = "west", more: str = "") -> str:
    file = path / "flows.yaml"
    file.write_text(FILE.format(servers=servers, source=source, more=more))
    return of(load(file).flows["orders"])


def of(flow: Flow) -> str:
    return settings_hash(canonical(flow.model_dump(mode="json", exclude_defaults=True)))


def test_connections_and_spelling_are_no_part_of_the_settings(tmp_path: Path) -> None:
    plain = hashed(tmp_path)
    assert hashed(tmp_path, servers="127.0.0.1:9092,localhost:9092") == plain
    assert hashed(tmp_path, more="lanes: auto") == plain, "the default"
    assert hashed(tmp_path, more="limits: {request_timeout_ms: 30000}") == plain


@pytest.mark.parametrize("more", ["lanes: 2", "exclude: [x]", "rename: '{topic}'", "commit: {interval_ms: 5}"])
def test_each_setting_is_part_of_them(more: str, tmp_path: Path) -> None:
    assert hashed(tmp_path, more=more) != hashed(tmp_path)


def test_the_names_of_clusters_are_part_of_them(tmp_path: Path) -> None:
    text = FILE.replace("  east:", "  north: {{properties: {{bootstrap.servers: 'localhost:9094'}}}}\n  east:")
    file = tmp_path / "flows.yaml"
    hashes = set()
    for source in ("west", "north"):
        file.write_text(text.format(servers="localhost:9092", source=source, more=""))
        hashes.add(of(load(file).flows["orders"]))
    assert len(hashes) == 2


def test_canonical_json_is_what_it_was() -> None:
    """Workers of all versions have to agree on it."""
    settings = {
        "topics": ["b", "ä"],
        "name": "f",
        "source": {"name": "w", "properties": {"p": "secret"}},
        "revision": 3,
    }
    assert canonical(settings) == '{"name":"f","source":"w","topics":["b","\\u00e4"]}'
    assert settings_hash(canonical(settings)) == "27d0dbff58b1cc49e4173e8e05e9af18"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.tier("extended")
@given(st.dictionaries(st.text().filter(lambda key: key not in ("source", "target", *NOT_STORED)), JSON))
def test_canonical_json_reads_back_and_knows_no_order(settings: dict[str, Any]) -> None:
    text = canonical(settings)
    assert canonical({**settings, **dict.fromkeys(NOT_STORED)}) == text, "what is a file's own isn't in it"
    assert text.isascii()
    assert json.loads(text) == settings
    assert canonical(dict(reversed(settings.items()))) == text


LIVE, FROZEN, JOB = Runs.LIVE, Runs.FROZEN, Runs.JOB


def opened(hash_: str = "a", revision: int | None = None, runs: Runs = LIVE, *, unknown: str = "") -> OpenSettings:
    return OpenSettings(runs=runs, hash=hash_, revision=revision, unknown=unknown)


@pytest.mark.parametrize(
    ("open_", "own", "at_start", "decision"),
    [
        (None, OwnFile(hash="a"), True, FileDecision.PROPOSE),
        (opened(), OwnFile(hash="a"), True, FileDecision.FOLLOW),
        (opened(), OwnFile(hash="new"), True, FileDecision.PROPOSE),
        (opened(), OwnFile(hash="new"), False, FileDecision.FOLLOW_OTHER),
        (opened(), OwnFile(hash="old"), True, FileDecision.FOLLOW_OTHER),
        (opened(), OwnFile(hash="old", revision=1), True, FileDecision.PROPOSE),
        (opened(revision=2), OwnFile(hash="old", revision=3), True, FileDecision.PROPOSE),
        (opened(revision=2), OwnFile(hash="old", revision=2), True, FileDecision.FOLLOW_OTHER),
        (opened(revision=2), OwnFile(hash="new", revision=2), True, FileDecision.PROPOSE),
        (opened(revision=2), OwnFile(hash="new", revision=1), True, FileDecision.FOLLOW_OTHER),
        (opened(revision=2), OwnFile(hash="new"), True, FileDecision.PROPOSE),
        (opened(revision=2), OwnFile(hash="a", revision=3), True, FileDecision.PROPOSE),
        (opened(revision=2), OwnFile(hash="a", revision=1), True, FileDecision.FOLLOW),
        (opened(""), OwnFile(hash="new"), True, FileDecision.PROPOSE),
        (opened(runs=FROZEN), OwnFile(hash="new", revision=9), True, FileDecision.FOLLOW_OTHER),
        (opened(runs=JOB), OwnFile(hash="new", revision=9), True, FileDecision.STAND_BY_JOB),
        (opened(runs=JOB), OwnFile(hash="a"), False, FileDecision.STAND_BY_JOB),
        (opened(unknown="of a newer version"), OwnFile(hash="old"), True, FileDecision.STAND_BY_NEWER),
        (opened(unknown="of a newer version"), OwnFile(hash="new"), True, FileDecision.PROPOSE),
    ],
)
def test_what_a_worker_does(open_: OpenSettings | None, own: OwnFile, at_start: bool, decision: FileDecision) -> None:
    assert decide(open_, {"a", "old"}, own, at_start=at_start) is decision


FILES = st.lists(
    st.builds(OwnFile, hash=st.sampled_from("abcd"), revision=st.none() | st.integers(1, 3)),
    min_size=1,
    max_size=4,
    unique=True,
)


@given(FILES, st.lists(st.integers(0, 3), max_size=60))
def test_however_often_workers_start_their_files_do_not_take_turns(files: list[OwnFile], starts: list[int]) -> None:
    """Each start proposes at most one generation, and after some none does any more."""
    open_, proposed, generations = None, set[str](), 0
    for number in starts:
        own = files[number % len(files)]
        if decide(open_, proposed, own, at_start=True) is FileDecision.PROPOSE:
            open_ = OpenSettings(runs=LIVE, hash=own.hash, revision=own.revision)
            proposed.add(own.hash)
            generations += 1
        else:
            assert open_ is not None
    hashes, revisions = len({file.hash for file in files}), len({file.revision for file in files} - {None})
    assert generations <= (hashes + 1) * (revisions + 1)


def test_a_half_done_change_is_finished_after_ten_seconds_of_looking_at_it() -> None:
    watch = NOTHING_SEEN.look(6, 7, 100.0)
    assert not watch.may_change(100.0 + FINISH_AFTER_S - 0.1)
    assert watch.look(6, 7, 105.0).may_change(100.0 + FINISH_AFTER_S)
    assert not watch.look(6, 8, 105.0).may_change(100.0 + FINISH_AFTER_S), "another one"
    assert watch.look(7, 0, 105.0).may_change(105.0), "it is done"
    assert not watch.fenced(109.0).may_change(100.0 + FINISH_AFTER_S), "somebody else is at it"
    assert watch.fenced(109.0).may_change(109.0 + FINISH_AFTER_S)


def test_whoever_was_fenced_before_anything_was_written_waits_too() -> None:
    watch = NOTHING_SEEN.look(6, 0, 100.0, passing=True)
    assert not watch.look(6, 0, 105.0, passing=True).may_change(100.0 + FINISH_AFTER_S - 0.1), "a command is at it"
    assert watch.may_change(100.0 + FINISH_AFTER_S), "it has died"
    assert watch.look(7, 0, 101.0).may_change(101.0), "it has handed over"

    watch = NOTHING_SEEN.look(6, 0, 100.0)
    assert watch.may_change(100.0)
    assert not watch.fenced(101.0).may_change(101.0 + FINISH_AFTER_S - 0.1)
    assert watch.fenced(101.0).may_change(101.0 + FINISH_AFTER_S)
    assert watch.fenced(101.0).look(7, 0, 102.0).may_change(102.0), "the other one is done"
    assert not watch.fenced(101.0).look(6, 7, 102.0).may_change(103.0), "it has begun"
