"""`translate` while retention removes what it has just found: it goes on from the log start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cli import main
from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from replicator.kafka.topic_reader import TopicReader

pytestmark = pytest.mark.tier("long", kafka="long")


def copied(copying: Copying) -> int:
    """Have 20 records copied; return the source's end."""
    worker = copying.running()
    copying.load.mixed(20)
    copying.finish(worker)
    return clients.stable_end(copying.source, copying.topic)


def removed_after(monkeypatch: pytest.MonkeyPatch, method: str, copying: Copying, to: int) -> None:
    """Have the source's records below an offset removed behind each question of this kind."""
    asked: Callable[..., Any] = getattr(TopicReader, method)

    def then_removed(self: TopicReader, *arguments: Any) -> Any:
        found = asked(self, *arguments)
        clients.delete_records(copying.source, copying.topic, 0, to)
        return found

    monkeypatch.setattr(TopicReader, method, then_removed)


def test_the_offset_of_a_time(
    make_copying: MakeCopying, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copying = make_copying(partitions=1)
    copied(copying)
    removed_after(monkeypatch, "at_time", copying, 5)
    code = main.invoke(["translate", "--time", "1970-01-01T00:00:00Z", "-c", str(copying.file.path)])
    said = capsys.readouterr()
    assert code == 0, said.err


def test_an_offset_behind_what_was_copied(
    make_copying: MakeCopying, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copying = make_copying(partitions=1)
    end = copied(copying)
    clients.put(clients.producer(copying.source), copying.topic, b"more", b"and more")
    removed_after(monkeypatch, "bounds", copying, end + 1)
    words = ["--topic", copying.topic, "--partition", "0", "--offset", str(end + 1)]
    code = main.invoke(["translate", *words, "-c", str(copying.file.path)])
    said = capsys.readouterr()
    assert "AUTO_OFFSET_RESET" not in said.err
    assert code in (0, 1), said.err
