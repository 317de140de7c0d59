"""What `rate`, `pause` and `resume` say of what they have done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli import main
from replicator.config import Flow
from replicator.flow import controlling
from replicator.flow.controlling import ChangedSettings
from replicator.state.run_settings import Paused, RateLimit, RunSettings

FLOW = """
clusters:
  a: { properties: { bootstrap.servers: "127.0.0.1:1" } }
  b: { properties: { bootstrap.servers: "127.0.0.1:2" } }
flows:
  orders: { source: a, target: b, topics: [orders] }
"""
SET = RunSettings(
    paused={"orders": Paused(by="ann", at_ms=1, why="")},
    rates={"": RateLimit(records_per_s=5, bytes_per_s=None, by="ann", at_ms=1)},
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rate", "--reset"], "orders: the limit was taken away"),
        (["rate", "--records-per-s", "7"], "orders: set"),
        (["rate"], "orders: nothing is changed"),
        (["resume"], "orders: resumed"),
        (["resume", "--topics", "bills"], "orders: nothing is changed"),
        (["pause"], "orders: paused"),
    ],
)
def test_it_is_said_what_was_done(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a control topic that isn't there: the flow has these settings, and the change is that of the command."""

    def changed(
        flow: Flow, topics: object, change: Callable[[RunSettings], RunSettings], patience: int
    ) -> ChangedSettings:
        return ChangedSettings(SET, change(SET))

    monkeypatch.setattr(controlling, "change_settings", changed)
    file = tmp_path / "flows.yaml"
    file.write_text(FLOW)
    assert main.invoke([*words, "-c", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == said
