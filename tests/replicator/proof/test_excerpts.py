"""Excerpts: different bytes never look alike, nothing that a terminal obeys gets through, and they are short."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from replicator.model.printable import printable
from replicator.proof.excerpts import Excerpt, Fields, excerpts, side_by_side, text_of
from tests.replicator.spark.reconcile.sample_outcomes import HOSTILE


def shown(excerpt: Excerpt) -> tuple[str, str, str]:
    return excerpt.before, excerpt.differing, excerpt.after


def test_what_differs_is_in_the_middle() -> None:
    one, other = excerpts(
        b'{"id": 7, "amount": 100, "currency": "EUR"}', b'{"id": 7, "amount": 250, "currency": "EUR"}'
    )
    assert shown(one) == ('{"id": 7, "amount": ', "10", '0, "currency": "EUR"}')
    assert shown(other) == ('{"id": 7, "amount": ', "25", '0, "currency": "EUR"}')
    assert (one.bytes, one.cut_before, one.cut_after) == (43, False, False)
    assert one.sha256 == hashlib.sha256(b'{"id": 7, "amount": 100, "currency": "EUR"}').hexdigest()


def test_a_long_value_is_cut_around_the_first_byte_that_differs() -> None:
    data = b"a" * 1_000_000 + b"ONE" + b"z" * 1_000_000
    one, other = excerpts(data, data.replace(b"ONE", b"TWO!"))
    assert shown(one) == ("a" * 24, "ONE", "z" * 24)
    assert shown(other) == ("a" * 24, "TWO!", "z" * 24)
    assert one.cut_before
    assert one.cut_after
    assert (one.bytes, other.bytes) == (2_000_003, 2_000_004)
    long, _ = excerpts(b"b" * 1_000, b"c" * 1_000)
    assert shown(long) == ("", "b" * 64, "")
    assert long.cut_differing


def test_null_empty_and_missing_ends_are_told_apart() -> None:
    nothing, empty = excerpts(None, b"")
    assert (nothing.bytes, nothing.sha256, empty.bytes) == (None, None, 0)
    short, long = excerpts(b"abc", b"abcdef")
    assert (shown(short), shown(long)) == (("abc", "", ""), ("abc", "def", ""))


def test_characters_are_not_divided() -> None:
    """ä and ö have the same first byte."""
    assert [shown(side) for side in excerpts("xäy".encode(), "xöy".encode())] == [("x", "ä", "y"), ("x", "ö", "y")]


def test_what_a_terminal_or_a_browser_would_obey_is_escaped() -> None:
    assert text_of(HOSTILE) == '<script>alert("k")</script>\\u001b[31m\\u0000\\u202e'
    assert printable("a\x1b]0;title\x07\n") == "a\\u001b]0;title\\u0007\\n"
    assert text_of(b"\xff\x00\x01\xfe") == "0xff0001fe"
    assert text_of(b"caf\xe9 au lait") == "caf\\xe9 au lait"


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=200), st.binary(max_size=200))
def test_sides_that_differ_never_look_alike(one: bytes, other: bytes, before: bytes, after: bytes) -> None:
    here, there = excerpts(before + one + after, before + other + after)
    assert all(part.isprintable() for side in (here, there) for part in shown(side))
    assert (here == there) == (one == other)
    if one != other and len(one) < 40 > len(other):
        assert (*shown(here), here.cut_differing) != (*shown(there), there.cut_differing)


def test_headers_that_differ_in_anything_are_not_the_same() -> None:
    plain = Fields(b"k", b"v", [("a", b"1"), ("b", None)], 1)
    others = (
        [("b", None), ("a", b"1")],
        [("a", b"1"), ("b", b"null")],
        [("a", b'1", b=null')],
        [("a", b"1")],
        None,
    )
    pairs = [side_by_side(plain, plain._replace(headers=headers)) for headers in others]
    assert [[pair.name for pair in of if not pair.same] for of in pairs] == [["headers"]] * len(others)
    assert all(pair.same for pair in side_by_side(plain, plain))
    assert "".join(shown(pairs[0][2].source)) == 'a="1", b=null'
