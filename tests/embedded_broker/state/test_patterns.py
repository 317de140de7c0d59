"""Patterns of topic names: against Python's `re` where both agree, refusals, and time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedded_broker.state.patterns import BadPattern, NamePattern
from tests.budget import budget

atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c_]", r"\d", r"\.", r"\w", "-", "(?:ab|c)", "(a|)"])
repeats = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?"])
parts = st.lists(st.tuples(atoms, repeats).map("".join), max_size=4).map("".join)
patterns = st.lists(parts, min_size=1, max_size=3).map("|".join)


@pytest.mark.tier("extended")
@settings(max_examples=budget(400, 5_000), deadline=None)
@given(patterns, st.lists(st.text("abcd1._-", max_size=6), max_size=8))
def test_it_matches_what_re_matches(text: str, names: list[str]) -> None:
    pattern = NamePattern(text)
    for name in names:
        assert pattern.matches(name) == bool(re.fullmatch(text, name)), (text, name)


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("^orders.*", "orders-1", True),
        ("orders", "orders-1", False),
        ("^a$|^b$", "b", True),
        ("a^b", "ab", False),
        (r"\Aab\z", "ab", True),
        ("(?i)OrDers", "oRdERS", True),
        ("[[:alpha:]]+[[:digit:]]", "ab1", True),
        ("[]a]", "]", True),
        ("[a-]", "-", True),
        ("(?P<name>x)(?<other>y)", "xy", True),
        (r"\S+", "any.thing", True),
        ("", "", True),
        ("", "a", False),
        (r"a\b-.*", "a-b", True),
        ("a{2", "a{2", True),
    ],
)
def test_what_re2_adds(text: str, name: str, matches: bool) -> None:
    assert NamePattern(text).matches(name) is matches


@pytest.mark.parametrize(
    "text",
    ["(", ")", "a)", "[", "[a", "*", "+a", "a{3,2}", "a{999}", "(?=a)", "(?!a)", r"(a)\1", "[b-a]", "\\",
     "[[:nonsense:]]", "(a{100}){100}", "a" * 5_000],
)  # fmt: skip
def test_what_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        NamePattern(text)


def test_a_pattern_of_many_names_is_accepted() -> None:
    assert NamePattern("|".join(f"name{number}" for number in range(50))).matches("name7")
    assert NamePattern("ä+").matches("ää")


def test_a_pattern_that_takes_backtrackers_for_ever_takes_no_time() -> None:
    assert not NamePattern("(a+)+(a|a)*(a*)*b").matches("a" * 249)  # else this test never ends
