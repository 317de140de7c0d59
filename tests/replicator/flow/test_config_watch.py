"""When the flow file is read again: when somebody asks, and once after each change that stands still."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from replicator.flow import config_watch
from replicator.flow.config_watch import ConfigReader, FileStates, ReadConfig, Settled, UnreadConfig, file_states
from replicator.model.errors import ConfigError

WAIT_S = 10.0


def at(number: int) -> FileStates:
    return ((1, 1, 1, number),)


def test_a_change_is_told_once_and_when_it_stands_still() -> None:
    settled = Settled(at(0))
    looks = [at(0), at(1), at(2), at(2), at(2), (None,), (None,), at(2), at(2)]
    assert [settled.look(now) for now in looks] == [False, False, False, True, False, False, True, False, True]


def test_what_was_read_when_asked_is_no_change() -> None:
    settled = Settled(at(0))
    settled.read(at(1))
    assert not settled.look(at(1))
    assert not settled.look(at(1))


def test_a_link_that_points_elsewhere_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes replaces what it mounts: the file behind the link has the same size, maybe the same time."""
    for name in ("one", "two"):
        (tmp_path / name).write_text("same")
    link = tmp_path / "link"
    link.symlink_to("one")
    before = file_states([link])
    link.unlink()
    link.symlink_to("two")
    assert before != file_states([link]) != (None,)
    assert file_states([tmp_path / "nothing"]) == (None,)


def test_it_reads_when_the_file_has_changed_and_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_watch, "LOOK_S", 0.02)
    file, found, read = tmp_path / "flows.yaml", queue.SimpleQueue[Any](), threading.Semaphore(0)
    file.write_text("0")
    first = file_states([file])

    def reads() -> ReadConfig:
        read.release()
        if (text := file.read_text()) == "wrong":
            raise ConfigError(text)
        return ReadConfig(text, ())  # type: ignore[arg-type]

    file.write_text("0: as it was written between the start's read and the first look")
    reader = ConfigReader(reads, lambda: [file], first)
    reader.start(found.put)
    assert found.get(timeout=WAIT_S).config.startswith("0: ")
    wrong = tmp_path / "new"
    wrong.write_text("wrong")
    wrong.rename(file)  # a file that is written in place can be seen half done for longer than two of these looks
    error = found.get(timeout=WAIT_S)
    assert isinstance(error, UnreadConfig)
    assert str(error.error) == "wrong"
    reader.ask()
    assert isinstance(found.get(timeout=WAIT_S), UnreadConfig)
    with pytest.raises(queue.Empty):
        found.get(timeout=0.2)
