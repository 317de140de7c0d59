"""Lanes are opened early only where nobody else can be running one."""

from __future__ import annotations

import pytest

from replicator.workers.early import WorkerClientId, may_open_early, parsed

HERE, DEAD = WorkerClientId("here", 7, "a1"), WorkerClientId("here", 8, "b2")


def _alive(found: WorkerClientId) -> bool:
    """As a host knows its process ids; of those of another host it knows nothing."""
    return found.pid != DEAD.pid


@pytest.mark.parametrize(
    ("members", "may"),
    [
        ([], True),
        ([DEAD.encode()], True),
        ([DEAD.encode(), DEAD.encode()], True),
        ([HERE.encode()], False),
        ([DEAD.encode(), HERE.encode()], False),
        ([WorkerClientId("there", 8, "b2").encode()], False),
        (["some-consumer"], False),
        ([""], False),
    ],
)
def test_who_else_may_run_a_lane(members: list[str], may: bool) -> None:
    assert may_open_early(members, "here", _alive) is may


@pytest.mark.parametrize(
    "text", ["", "a/b/1/c", "eos-replicate/h/x/n", "eos-replicate/h/1", "eos-replicate//1/n", "eos-replicate/h/¹/n"]
)
def test_other_clients_are_told_apart(text: str) -> None:
    assert parsed(text) is None


def test_a_client_id_reads_back() -> None:
    assert parsed(HERE.encode()) == HERE
