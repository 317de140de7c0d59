"""What `rate`, `pause` and `resume` say of what they have done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from cli import main
from replicator.config import Flow
from replicator.flow import controlling
from replicator.flow.controlling import ChangedSettings
from replicator.state.run_settings import Paused, RateLimit, RunSettings

pytestmark = pytest.mark.tier("default")

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


class Typed(Protocol):
    def __call__(self, words: list[str], before: RunSettings, rate: str = "{}") -> list[str]: ...


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command, and returns what it says. With a control topic that isn't there: the flow has the settings
    `before`, and the change is that of the command. `rate` is the flow file's."""

    def type_(words: list[str], before: RunSettings, rate: str = "{}") -> list[str]:
        def changed(
            flow: Flow, topics: object, change: Callable[[RunSettings], RunSettings], patience: int
        ) -> ChangedSettings:
            return ChangedSettings(before, change(before))

        monkeypatch.setattr(controlling, "change_settings", changed)
        file = tmp_path / "flows.yaml"
        file.write_text(FLOW.replace("[orders]", f"[orders, payments], rate: {rate}"))
        assert main.invoke([*words, "-c", str(file)]) == 0
        return capsys.readouterr().out.splitlines()

    return type_


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
def test_it_is_said_what_was_done(words: list[str], said: str, typed: Typed) -> None:
    assert typed(words, SET)[0] == said


OF_FILE = "  the flow is copied with at most 3 records/s, as the flow file says"
OF_TOPIC = "  payments is copied with at most 5 records/s, set by ann"
FIVE = RateLimit(records_per_s=5, by="ann", at_ms=1)
NONE = RateLimit(by="ann", at_ms=1)
ANN = Paused(by="ann", at_ms=1)


@pytest.mark.parametrize(
    ("words", "before", "lines"),
    [
        (
            ["rate", "--topics", "payments", "--records-per-s", "5", "--by", "ann"],
            {},
            ["orders: set", OF_FILE, OF_TOPIC],
        ),
        (["rate"], {"payments": FIVE}, ["orders: nothing is changed", OF_FILE, OF_TOPIC]),
        (["rate", "--reset"], {"": FIVE}, ["orders: the limit was taken away", OF_FILE]),
        (["rate", "--reset"], {"": NONE}, ["orders: there is no limit by an operator any more", OF_FILE]),
        (["rate", "--reset"], {}, ["orders: nothing is changed", OF_FILE]),
        (["rate"], {"": NONE}, ["orders: nothing is changed", "  the flow is copied with no limit, set by ann"]),
    ],
)
def test_the_limit_of_the_flow_file_is_said_unless_an_operator_has_replaced_it(
    words: list[str], before: dict[str, RateLimit], lines: list[str], typed: Typed
) -> None:
    said = RunSettings(rates=before)
    assert typed(words, said, rate="{records_per_s: 3}") == lines
    found = json.loads("\n".join(typed([*words, "--json"], said, rate="{records_per_s: 3}")))["rates"]
    of_flow = (3, "") if OF_FILE in lines else (None, "ann")
    assert (found[""]["records_per_s"], found[""]["by"]) == of_flow
    assert len(found) == len(lines) - 1


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        (RunSettings(rates={"": FIVE}), ["  nothing is paused, and nothing is limited"]),
        (
            RunSettings(paused={"payments": ANN}, rates={"": FIVE}),
            ["  payments is paused by ann, since 1970-01-01T00:00:00Z", "  nothing is limited"],
        ),
        (RunSettings(rates={"": FIVE, "payments": FIVE}), [OF_TOPIC, "  the flow as a whole has no limit"]),
    ],
)
def test_a_reset_says_that_no_limit_is_left(before: RunSettings, lines: list[str], typed: Typed) -> None:
    assert typed(["rate", "--reset"], before) == ["orders: the limit was taken away", *lines]


@pytest.mark.parametrize(
    ("words", "before", "lines"),
    [
        (
            ["rate"],
            RunSettings(paused={"bills": ANN}, rates={"bills": FIVE}),
            [
                "orders: nothing is changed",
                "  bills (no longer in the flow file) is paused by ann, since 1970-01-01T00:00:00Z",
                "  bills (no longer in the flow file) is copied with at most 5 records/s, set by ann",
                "  the flow as a whole has no limit",
            ],
        ),
        (
            ["resume", "--topics", "bills"],
            RunSettings(paused={"bills": ANN}),
            [
                "orders: no longer paused",
                "  nothing is paused, and nothing is limited",
                "  bills is no longer in the flow file: nothing of it is copied",
            ],
        ),
        (
            ["resume"],
            RunSettings(paused={"bills": ANN, "payments": ANN}),
            [
                "orders: resumed",
                "  nothing is paused, and nothing is limited",
                "  bills is no longer in the flow file: nothing of it is copied",
            ],
        ),
    ],
)
def test_a_topic_that_is_no_longer_in_the_flow_file_is_said_to_be_so(
    words: list[str], before: RunSettings, lines: list[str], typed: Typed
) -> None:
    assert typed(words, before) == lines
    assert json.loads("\n".join(typed(["rate", "--json"], before)))["taken_out"] == ["bills"]
