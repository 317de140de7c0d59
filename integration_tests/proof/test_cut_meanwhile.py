"""Retention removes records between a comparison's snapshot and its reading: they are no difference."""

from __future__ import annotations

from typing import Any

import pytest

from cli import main
from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import TwoTopics
from replicator.proof import local

pytestmark = pytest.mark.tier("long", kafka="long")


@pytest.mark.parametrize("cut", ["source", "target", "both"])
def test_what_retention_removes_before_it_is_read_is_no_difference(
    make_copying: MakeCopying, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cut: str
) -> None:
    two = TwoTopics(make_copying(partitions=1))
    two.assert_stops(two.running(10), 0)
    compared = local.reconcile_local

    def cut_first(*arguments: Any, **how: Any) -> Any:
        if cut != "target":
            clients.delete_records(two.source, two.first, 0, 10)
        if cut != "source":
            clients.delete_records(two.target, two.copy_of(two.first), 0, 10)
        return compared(*arguments, **how)

    monkeypatch.setattr("replicator.proof.local.reconcile_local", cut_first)
    code = main.invoke(["reconcile", "--local", "-c", str(two.flow.file.path), "--json"])
    said = capsys.readouterr()
    assert code == 0, said.out
