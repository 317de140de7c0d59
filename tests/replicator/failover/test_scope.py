"""What is failed over: since when, also while somebody changes generations, and what undoing it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from replicator.config import load_text
from replicator.failover.scope import SomeTopics, WholeFlow, still_stands
from replicator.flow.frozen import failed_over
from replicator.model.errors import ConfigError, FlowFrozen
from replicator.state.claims import Claims
from replicator.state.control import giving_back, handing_back
from replicator.state.control_topic import Control
from replicator.state.failover_note import FailoverNote, decode
from replicator.state.generation import Kind, LaneAssignment
from replicator.state.generation import decode as decode_generation

pytestmark = pytest.mark.tier("default")

FLOW = load_text(
    """
clusters: { a: { properties: { bootstrap.servers: "a:1" } }, b: { properties: { bootstrap.servers: "b:1" } } }
flows: { orders: { source: a, target: b, topics: ["^.*"] } }
""",
    env={},
).flows["orders"]
A, B, BOTH = SomeTopics(FLOW, ("a",)), SomeTopics(FLOW, ("b",)), SomeTopics(FLOW, ("a", "b"))
WHOLE = WholeFlow(FLOW)
NOTHING = Claims({}, ())
NOTE = FailoverNote(
    generation=2, at_ms=1, by="me", source="a", target="b", ends_seen_ms=1, complete=True, not_copied=0,
    partitions=1, groups=0, chunks=1, digest="d", topics=("a",),
)  # fmt: skip


def prepared(control: Control, failed_over: Mapping[str, int] | None, kind: Kind = Kind.LIVE) -> Control:
    change = control.prepare(LaneAssignment(2), {"a": 1, "b": 1, "c": 1}, 1, kind, f"by-{control.newest + 1}",
                             failed_over=failed_over)  # fmt: skip
    return control.apply(change)


def done(control: Control) -> Control:
    for record in control.finish(2):
        control = control.apply(record)
    return control


FIRST = done(prepared(Control(), None))
PART = done(prepared(FIRST, {"a": 2}))


def since(scope: SomeTopics | WholeFlow, control: Control) -> tuple[int, str] | None:
    found = scope.stands(control)
    return None if found is None else (found.number, found.by)


def test_later_generations_change_neither_since_when_nor_by_whom() -> None:
    assert (since(A, FIRST), since(A, PART), since(B, PART), since(BOTH, PART)) == (None, (2, "by-2"), None, None)
    later = prepared(PART, None)
    assert since(A, later) == since(A, done(later)) == (2, "by-2")
    more = done(prepared(done(later), {"a": 2, "b": 4}))
    assert (since(A, more), since(BOTH, more)) == ((2, "by-2"), (4, "by-4"))


def test_whoever_has_decided_it_is_told_and_not_only_the_process() -> None:
    assert PART.failed_over_said("a").startswith(
        "topic a was failed over (generation 2, by by-2, at 1970-01-01T00:00:00Z): "
    )
    change = FIRST.prepare(LaneAssignment(1), {}, 1, Kind.FROZEN, "host:1:x", decided_by="ann")
    known = decode_generation(change.key, change.encode())
    assert known == change
    whole = done(FIRST.apply(change))
    found = WHOLE.stands(whole)
    assert found is not None
    assert (found.by, found.who) == ("host:1:x", "ann")
    assert "by ann, at 1970-01-01T00:00:00Z)" in failed_over(whole)
    with pytest.raises(FlowFrozen, match="by ann"):
        A.check(whole, NOTHING)
    part = FIRST.prepare(LaneAssignment(2), {}, 1, by="host:1:x", failed_over={"a": 2}, decided_by="ann")
    later = done(prepared(done(FIRST.apply(part)), None))
    assert "(generation 2, by ann, at 1970-01-01T00:00:00Z)" in later.failed_over_said("a"), "as long as it stands"


def test_what_is_half_frozen_or_half_given_back_is_left_to_be_undone() -> None:
    half = prepared(FIRST, {"a": 2})
    assert A.left(half) is not None, "whoever runs the flow finishes it"
    given = prepared(PART, {})
    assert since(A, given) is None
    assert A.left(given) is not None, "whoever has begun that may be dead"
    assert A.left(done(given)) is None
    assert B.left(PART) is None


def test_a_whole_failover_has_all_and_leaves_the_part_when_it_is_undone() -> None:
    whole = done(prepared(PART, None, Kind.FROZEN))
    assert since(WHOLE, whole) == (3, "by-3")
    with pytest.raises(FlowFrozen, match="as a whole"):
        A.check(whole, NOTHING)
    wanted = handing_back(lambda _: 2)(whole)
    assert wanted is not None
    undone = done(prepared(whole, wanted.failed_over))
    assert since(A, undone) == (2, "by-2")
    with pytest.raises(ConfigError, match="--undo --topics a"):
        WHOLE.left(undone)
    assert WHOLE.left(FIRST) is None


def test_topics_are_given_back_alone_and_once() -> None:
    both = done(prepared(PART, {"a": 2, "b": 3}))
    wanted = giving_back(("a",), lambda _: 2)(both)
    assert wanted is not None
    assert wanted.failed_over == {"b": 3}
    back = done(prepared(both, wanted.failed_over))
    assert giving_back(("a",), lambda _: 2)(back) is None
    only_own = BOTH.back(lambda _: 2, 3)(both)
    assert only_own is not None
    assert only_own.failed_over == {"a": 2}, "of which a call before it has a verdict"


def test_a_topic_that_the_flow_has_never_copied_is_told_with_what_was_meant() -> None:
    with pytest.raises(ConfigError, match="never copied a source topic 'payment'; did you mean 'payments'"):
        SomeTopics(FLOW, ("payment",)).check(done(opened({"payments": 1})), NOTHING)
    A.check(FIRST, NOTHING)


def opened(listing: dict[str, int]) -> Control:
    return Control().apply(Control().prepare(LaneAssignment(1), listing, 1))


def test_a_verdict_stands_until_its_topics_are_given_back_or_failed_over_anew() -> None:
    assert decode(NOTE.encode()[1]) == NOTE
    assert decode(replace(NOTE, topics=()).encode()[1]).topics == ()
    assert still_stands(NOTE, PART)
    assert still_stands(NOTE, done(prepared(PART, None)))
    given = done(prepared(PART, {}))
    assert not still_stands(NOTE, given)
    assert not still_stands(NOTE, done(prepared(given, {"a": 4})))
    whole = done(prepared(PART, None, Kind.FROZEN))
    assert still_stands(NOTE, whole)
    assert still_stands(replace(NOTE, topics=(), generation=3), whole)
