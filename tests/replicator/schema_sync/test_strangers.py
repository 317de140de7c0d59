"""A stranger who registers between the look at a subject and the write, in the moment in which another writer has taken
the subject's mode away: nothing of theirs is written over, or it is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration_tests.harness.schema_registry import Registry
from tests.replicator.schema_sync.test_sync import here, syncing, there

pytestmark = pytest.mark.tier("default")
__all__ = ["here", "there"]


def before_write(there: Registry, subject: str, act: Callable[[], object]) -> None:
    """Just before the first schema of the subject is registered: a writer takes the mode away, and another one sets it
    again when `act` is done."""
    left = [True]

    def fault(method: str, path: str) -> None:
        if method == "POST" and path == f"/subjects/{subject}/versions" and left[0]:
            left[0] = False
            there.answer("DELETE", f"/mode/{subject}", None)
            act()
            there.answer("PUT", f"/mode/{subject}?force=true", {"mode": "IMPORT"})

    there.fault = fault


@pytest.mark.parametrize("known", [0, 1])
def test_a_version_of_a_stranger_is_never_written_over(here: Registry, there: Registry, known: int) -> None:
    texts = ('"int"', '"long"', '"float"')
    for text in texts[:known]:
        here.register("s", text)
    with syncing(here, there) as sync:
        sync.apply(sync.compare(levels=True))
        for text in texts[known:]:
            here.register("s", text)
        here.register("t", '"string"')
        there.state.highest_id = 10
        before_write(there, "s", lambda: there.register("s", '"double"'))
        plan = sync.apply(sync.compare(levels=True))
        first = known + 1
        assert there.content()["s", first] == (11, '"double"', False)
        assert set(there.content()) == {("s", number) for number in range(1, first + 1)} | {("t", 1)}
        (found,) = plan.conflicts
        assert (found.version, found.id) == (("s", first), first)
        assert f"s version {first} was registered at the target meanwhile with id 11" in found.reason
        assert there.state.modes == {}
        again = sync.compare(levels=True).plan
    assert str(again.conflicts[0]) == f"s version {first} (id {first}): the target has this version with id 11"


def test_where_the_sources_numbers_have_a_gap_it_is_told_that_a_stranger_was_there(
    here: Registry, there: Registry
) -> None:
    for text in ('"int"', '"long"', '"float"'):
        here.register("s", text)
    for words in ("", "?permanent=true"):
        here.answer("DELETE", f"/subjects/s/versions/2{words}", None)
    with syncing(here, there) as sync:
        there.state.highest_id = 10
        written = 0

        def strangers() -> None:
            for text in ('"double"', '"bytes"'):
                there.register("s", text)

        def third(method: str, path: str) -> None:
            nonlocal written
            written += method == "POST"
            if method == "POST" and written == 2:
                before_write(there, "s", strangers)
                there.fault(method, path)

        there.fault = third
        (found,) = sync.apply(sync.compare(levels=True)).conflicts
    assert found.version == ("s", 3)
    assert "s version 2 was registered at the target meanwhile" in found.reason
    assert "s version 3 may have been written over somebody's" in found.reason
    assert there.state.modes == {}


def test_a_schema_that_a_subject_has_twice_keeps_both_its_versions(here: Registry, there: Registry) -> None:
    here.register("s", '"int"')
    here.answer("DELETE", "/subjects/s/versions/1", None)
    here.register("s", '"int"')
    here.register("other", '"long"')
    here.register("s", '"long"')  # with the id of another subject's
    with syncing(here, there) as sync:
        assert sync.apply(sync.compare(levels=True)).conflicts == ()
    assert there.content() == here.content()
    assert sorted(there.content()) == [("other", 1), ("s", 1), ("s", 2), ("s", 3)]
