"""The records are as odd as they claim to be, and every one can be told from every other."""

from __future__ import annotations

import random

from cli.demo import records
from cli.demo.records import make, make_big, name_of


def test_every_kind_of_record_is_there() -> None:
    made = [make(number, random.Random(number)) for number in range(64)]
    assert {odd.key is None for odd in made} == {True, False}
    assert any(odd.key == b"" for odd in made)
    assert any(odd.key == b"" and odd.value == b"" for odd in made)
    assert any(odd.key and odd.value is None for odd in made), "a tombstone"
    assert any(odd.key is None and odd.value is None for odd in made)
    assert any(odd.key and odd.value == b"" for odd in made)
    assert any(len({key for key, _ in odd.headers}) < len(odd.headers) for odd in made), "repeated headers"
    contents = {content for odd in made for _, content in odd.headers}
    assert {None, b""} <= contents
    assert any(key == "" for odd in made for key, _ in odd.headers)
    assert any(odd.age_ms > 0 for odd in made), "timestamps don't rise"


def test_each_record_is_known_by_its_number() -> None:
    for number in range(200):
        odd = make(number, random.Random(number))
        assert name_of(odd.key, odd.value, odd.headers) == b"#%09d" % number
    big = make_big(7, random.Random(7))
    assert name_of(big.key, big.value, big.headers) == b"#000000007"


def test_the_big_one_nearly_fills_the_largest_batch() -> None:
    value = make_big(7, random.Random(7)).value
    assert value is not None
    assert records.LIMIT_BYTES - 1000 < len(value) < records.LIMIT_BYTES - 100


def test_the_seed_makes_the_record() -> None:
    assert make(5, random.Random(1)) == make(5, random.Random(1))
    assert make(0, random.Random(1)) != make(0, random.Random(2))


def test_a_record_without_a_number_is_known_by_all_of_its_content() -> None:
    assert name_of(b"a", b"b", ()) != name_of(b"a", b"c", ())
    assert name_of(b"a", None, ()) != name_of(None, b"a", ())
    assert name_of(None, None, (("h", b"x"),)) != name_of(None, None, ())
