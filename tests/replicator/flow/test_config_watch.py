"""When the flow file is read again: when somebody asks, and once after each change that stands still."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from replicator.config import load
from replicator.flow import config_watch
from replicator.flow.config_watch import (
    ConfigReader,
    FileStates,
    NamedFiles,
    ReadConfig,
    Settled,
    UnreadConfig,
    file_states,
)
from replicator.model.errors import ConfigError
from tests.embedded_broker.security.certificates import Authority

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


FLOWS = """
clusters:
  west: {{properties: {{bootstrap.servers: "localhost:1"{more}}}}}
  east: {{properties: {{bootstrap.servers: "localhost:2"}}}}
flows:
  orders: {{source: west, target: east, topics: [orders]}}
"""


@pytest.mark.tier("long")
@pytest.mark.parametrize(
    "properties",
    [
        "security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: me, sasl.password: 'file:secret'",
        "security.protocol: SSL, ssl.ca.location: {directory}/secret",
    ],
)
def test_a_file_that_was_missing_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: str
) -> None:
    """The flow file is right as it stands, and isn't touched again."""
    (tmp_path / "authority").mkdir()
    certificate = Authority(tmp_path / "authority").certificate.read_bytes()
    monkeypatch.setattr(config_watch, "LOOK_S", 0.02)
    file, found = tmp_path / "flows.yaml", queue.SimpleQueue[Any]()
    file.write_text(FLOWS.format(more=""))
    first, loaded = file_states([file]), load(file, {})

    def read() -> ReadConfig:
        again = load(file, {})
        return ReadConfig(again, tuple(again.flows.values()))

    named = NamedFiles(file, loaded, read)
    reader = ConfigReader(named.read, named.files, first)
    reader.start(found.put)
    new, secret = tmp_path / "new", tmp_path / "secret.new"
    new.write_text(FLOWS.format(more=f", {properties.format(directory=tmp_path)}"))
    new.rename(file)
    error = found.get(timeout=WAIT_S)
    assert isinstance(error, UnreadConfig)
    assert properties.split(": ")[-2].split()[-1] in str(error.error)
    with pytest.raises(queue.Empty):
        found.get(timeout=0.2)  # told once, though it names a file that wasn't known
    secret.write_bytes(certificate)
    secret.rename(tmp_path / "secret")
    taken = found.get(timeout=WAIT_S)
    assert isinstance(taken, ReadConfig), taken.error
    assert taken.flows[0].source.files[0][0] == str(tmp_path / "secret")
    with pytest.raises(queue.Empty):
        found.get(timeout=0.2)
