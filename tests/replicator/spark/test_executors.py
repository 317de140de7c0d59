"""What executors lack, and when it is said that there are none."""

from __future__ import annotations

import pickle
import sys
from importlib import metadata
from pathlib import Path

import pytest
from pyspark import cloudpickle

from replicator import config
from replicator.model.errors import ConfigError
from replicator.spark import executors
from replicator.spark.executors import AGAIN_S, ALONE_S, Absence, ExecutorState

FILE = """\
clusters:
  a:
    properties:
      bootstrap.servers: "127.0.0.1:1"
      ssl.ca.location: /etc/a.pem
      ssl.certificate.location: /etc/a.crt
  b: {properties: {bootstrap.servers: "127.0.0.1:2", ssl.ca.location: probe}}
flows: {f: {source: a, target: b, topics: [t]}}
"""


def test_waiting_without_executors_is_said_once_in_a_while_and_when_it_is_over() -> None:
    absence = Absence()
    assert absence.look(0, 0, 0) is None, "nothing waits"
    assert absence.look(100, 2, 0) is None
    assert absence.look(100 + ALONE_S - 1, 2, 0) is None
    assert absence.look(100 + ALONE_S, 2, 0) == ALONE_S
    assert absence.look(101 + ALONE_S, 2, 0) is None
    assert absence.look(100 + ALONE_S + AGAIN_S, 2, 0) == ALONE_S + AGAIN_S
    assert absence.look(101 + ALONE_S + AGAIN_S, 2, 1) == 0.0
    assert absence.look(102 + ALONE_S + AGAIN_S, 2, 1) is None
    assert absence.look(103 + ALONE_S + AGAIN_S, 2, 0) is None, "it counts from the beginning again"


def test_a_short_absence_is_not_worth_a_line() -> None:
    absence = Absence()
    assert [absence.look(now_s, 1, 0) for now_s in (0, 5, 10)] == [None] * 3
    assert [absence.look(now_s, 1, 1) for now_s in (12, 14)] == [None] * 2
    assert absence.look(20, 1, 0) is None


def test_files_that_properties_name_are_looked_for(tmp_path: Path) -> None:
    flow = config.load_text(FILE, env={}).flows["f"]
    assert executors.files_of(flow) == ("/etc/a.crt", "/etc/a.pem")
    there = tmp_path / "there"
    there.touch()
    seen = ExecutorState._make(executors.looker(["json"], [str(there), str(tmp_path / "not")])(0))
    assert seen.lacking == (str(tmp_path / "not"),)
    with pytest.raises(ConfigError, match=rf"executor {seen.host} has no .*/not, which .*ssl.ca.pem"):
        executors.check(seen)


def test_another_version_is_named_with_its_host() -> None:
    executors.check(ExecutorState("w", 1, executors.version(), ()))
    with pytest.raises(ConfigError, match=r"is .* here and 9 on Python 3 on executor w; install the same eos-repl"):
        executors.check(ExecutorState("w", 1, "9 on Python 3", ()))


def test_what_looks_at_an_executor_needs_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled as Spark does, and loaded where this module isn't."""
    pickled = cloudpickle.dumps(executors.looker(["replicator.no_such_module"], []))  # type: ignore[no-untyped-call]
    monkeypatch.setitem(sys.modules, "replicator.spark.executors", None)
    monkeypatch.setattr(metadata, "version", lambda name: "9")
    assert pickle.loads(pickled)(0)[2].startswith("9 on Python ")
