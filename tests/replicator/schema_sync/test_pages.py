"""Versions that are deleted while the lists of a registry are read by pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration_tests.harness.schema_registry import Registry
from replicator.schema_sync import registry as pages
from tests.replicator.schema_sync.test_sync import go_over, here, syncing, there

pytestmark = pytest.mark.tier("default")
__all__ = ["here", "there"]


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 2)


def deleting_behind_the_first_page(here: Registry) -> Callable[[str, str], None]:
    """Somebody soft-deletes a version of the first page, and the others shift by one."""

    def fault(method: str, path: str) -> None:
        if path.startswith("/schemas?deleted=false&offset=2"):
            here.fault = lambda method, path: None
            here.answer("DELETE", "/subjects/s0/versions/1", None)

    return fault


def test_one_that_is_in_no_page_is_not_taken_for_deleted(here: Registry, there: Registry) -> None:
    for number in range(6):
        here.register(f"s{number}", f'{{"type": "fixed", "name": "n{number}", "size": 1}}')
    go_over(here, there)
    here.fault = deleting_behind_the_first_page(here)
    with syncing(here, there) as sync:
        compared = sync.compare(levels=False)
        assert compared.plan.delete == ()
        sync.apply(compared)
    assert not [at for at, (_, _, deleted) in there.content().items() if deleted]
    go_over(here, there)
    assert there.content() == here.content()
    assert there.content()["s0", 1][2], "the deletion follows with the next comparison"


def test_one_that_the_target_lacks_goes_over_live(here: Registry, there: Registry) -> None:
    for number in range(6):
        here.register(f"s{number}", f'{{"type": "fixed", "name": "n{number}", "size": 1}}')
    here.fault = deleting_behind_the_first_page(here)
    go_over(here, there)
    assert not there.content()["s2", 1][2]
