"""Versions and kinds of records: what is read, what is ignored, and what stops a flow."""

from __future__ import annotations

import json

import pytest

from replicator.state.envelope import NewerFormat, NotOurs, unwrap, wrap

KINDS = frozenset({"claim"})


def value(**fields: object) -> bytes:
    body = {"v": 1, "kind": "claim", "must_understand": True, "offset": 7} | fields
    return json.dumps({name: it for name, it in body.items() if it is not None}).encode()


def test_what_is_wrapped_is_read_again() -> None:
    assert unwrap(b"k", wrap("claim", {"offset": 7}), KINDS) == json.loads(value())


@pytest.mark.parametrize("newer", [{"v": 2}, {"kind": "decision"}, {"v": 2, "kind": "decision"}])
def test_what_is_newer_is_ignored_unless_it_must_be_understood(newer: dict[str, object]) -> None:
    assert unwrap(b"k", value(must_understand=False, **newer), KINDS) is None
    with pytest.raises(NewerFormat, match="of kind"):
        unwrap(b"k", value(**newer), KINDS)


def test_a_known_record_is_read_whether_it_must_be_or_not() -> None:
    assert unwrap(b"k", value(must_understand=False), KINDS) is not None


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        value(v=None),
        value(v="1"),
        value(v=True),
        value(kind=None),
        value(kind=1),
        value(must_understand=None),
        value(must_understand=1),
    ],
)
def test_what_somebody_else_wrote_is_refused(foreign: bytes) -> None:
    with pytest.raises(NotOurs):
        unwrap(b"k", foreign, KINDS)
