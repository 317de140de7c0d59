"""What is kept of a record that is set aside: all of it, or as much as can be held, and what is lost is named."""

from __future__ import annotations

from replicator.lane.aside import FRAMING_BYTES, Kept, aside
from replicator.model.commands import Command
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.planes.contract import AsideRecord, UnreadRecord, WholeRecord
from replicator.state.decisions import decide
from replicator.state.occurrences import found

INCIDENT = Incident("record_refused", "no key", topic="t", partition=3, offset=9)
FOUND = found(INCIDENT, Partition("copy", 3), Partition("t", 3), "me", 1, 1_000)
DECISION = decide(FOUND.id, Command.SET_ASIDE, [FOUND], {}, by="ann", why="später", now_ms=7)


def kept(record: WholeRecord | UnreadRecord, bytes_max: int = 1_000_000) -> tuple[AsideRecord, Kept]:
    return aside(record, FOUND, DECISION, "cluster", bytes_max)


def test_it_is_held_as_it_is_with_headers_of_ours_behind_its_own() -> None:
    made, how = kept(WholeRecord(None, b"", 0, (("a", None), ("a", b"2"))))
    assert (made.key, made.value, how) == (None, b"", Kept.WHOLE)
    assert made.headers[:2] == (("a", None), ("a", b"2"))
    ours = dict(made.headers[2:])
    assert (ours["eos.source.offset"], ours["eos.source.timestamp"], ours["eos.why"]) == (b"9", b"0", "später".encode())
    assert (ours["eos.reason"], ours["eos.detail"], ours["eos.kept"]) == (b"record_refused", b"no key", b"whole")


def test_headers_that_the_client_can_not_return_are_named_as_lost() -> None:
    made, how = kept(WholeRecord(b"k", b"v", 5, None))
    assert (made.key, made.value, how) == (b"k", b"v", Kept.WITHOUT_HEADERS)
    assert dict(made.headers)["eos.kept"] == b"without headers"


def test_what_is_too_large_to_be_written_leaves_a_stub() -> None:
    size = 10_000
    whole, how = kept(WholeRecord(b"k", b"v" * size, 5, ()), size + 2 * FRAMING_BYTES)
    assert (how, whole.value) == (Kept.WHOLE, b"v" * size)
    stub, how = kept(WholeRecord(b"k", b"v" * size, 5, (("h", b"1"),)), size)
    assert (stub.key, stub.value, how) == (None, None, Kept.STUB)
    said = dict(stub.headers)
    assert (said["eos.kept"], said["eos.lost.bytes"], said["eos.source.offset"]) == (b"stub", b"10001", b"9")
    assert "h" not in said


def test_what_can_not_be_read_leaves_a_stub_without_what_is_not_known() -> None:
    stub, how = kept(UnreadRecord("larger than the client takes"))
    assert (stub.key, stub.value, how) == (None, None, Kept.STUB)
    said = dict(stub.headers)
    assert (said["eos.kept"], said["eos.source.offset"], said["eos.by"]) == (b"stub", b"9", b"ann")
    assert said.keys().isdisjoint({"eos.lost.bytes", "eos.source.timestamp"})
