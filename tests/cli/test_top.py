"""`top`: what it draws at 80 and 160 columns, and what it says when no process answers."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from rich.console import Console

from cli import main
from cli.commands.top_show import shown, size
from replicator.model.printable import printable
from replicator.observe.conditions import FlowConditions
from replicator.observe.metrics import Metrics
from replicator.observe.shown import Process, as_json, shown_of
from replicator.observe.view import Doing, FlowView
from replicator.observe.web import Web
from replicator.state.run_settings import RateLimit
from tests.replicator.observe.test_page import EVERY_STATE, HOSTILE, PAUSED, RATES, REFUSED, SCHEMAS, flow, partition

FILE = """\
clusters: {{a: {{properties: {{bootstrap.servers: "a:1"}}}}, b: {{properties: {{bootstrap.servers: "b:1"}}}}}}
flows: {{f: {{source: a, target: b, topics: [t]}}}}
{}
"""
ROOT = Path(__file__).parents[2]
OWN_TERMINAL = """\
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from cli import main
main.entry()
"""
"""The command, on a terminal whose ^C it gets as a signal."""
WAIT_S_MAX = 60.0
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")
ALTERNATE_SCREEN, MAIN_SCREEN, HOME = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[H"
CURSOR_HIDDEN, CURSOR_SHOWN = b"\x1b[?25l", b"\x1b[?25h"
FLOW_LINE = b": berlin"
MANY = flow(
    *(partition(f"a-rather-long-topic-name-{n:04}-{'x' * 60}", 0, Doing.STOPPED, "record_refused") for n in range(500))
)


def answer(*views: FlowView, config_fault: str = "") -> dict[str, Any]:
    """As the process gives it, through JSON."""
    process = Process("host-1", 4711, "1.2.3", 1_700_000_000_000)
    told = as_json(process, [shown_of(view, []) for view in views], config_fault)
    found: dict[str, Any] = json.loads(json.dumps(told))
    return found


def drawn(found: dict[str, Any], width: int, height: int | None = None) -> list[str]:
    said = io.StringIO()
    Console(width=width, file=said).print(shown(found, width, height))
    return said.getvalue().splitlines()


@pytest.mark.tier("default")
def test_one_topic_that_has_no_room_is_counted_as_one() -> None:
    found = answer(flow(*(partition(f"t{number}", 0) for number in range(9))))
    [(height, more)] = [
        (height, line) for height in range(8, 30) for line in drawn(found, 80, height) if line.startswith("  … and 1 ")
    ]
    assert more.rstrip() == "  … and 1 more topic", height
    assert any("… and 2 more topics" in line for line in drawn(found, 80, height - 1))


def test_what_keeps_the_whole_flow_from_copying_stands_below_its_name() -> None:
    conditions = FlowConditions({"paris": 1_700_000_000_000}, "it was failed over (generation 7, by ann)")
    lines = drawn(answer(replace(EVERY_STATE, cause="no login")), 80)
    assert lines[2] == "  it has ended by: no login"
    lines = drawn(answer(replace(EVERY_STATE, conditions=conditions)), 80)
    assert lines[2] == "  no broker of paris has answered since 2023-11-14 22:13:20 UTC"
    assert lines[3] == "  it was failed over (generation 7, by ann)"


def test_a_cause_that_is_the_state_is_said_once() -> None:
    lines = drawn(answer(EVERY_STATE), 160)
    assert "  events[3] paused at 5,000: paused by ann" in lines
    assert "  events[4] failed_over at 5,000: topic events was failed over" in lines
    assert "  payments[2] waiting target_not_ready at 5,000: partition 2 of payments has no leader" in lines


def test_a_fault_of_the_flow_file_stands_above_the_flows() -> None:
    found = answer(EVERY_STATE, config_fault=f"line 3: {HOSTILE}")
    assert (
        drawn(found, 160)[1] == f"older settings: the flow file could not be read again: line 3: {printable(HOSTILE)}"
    )
    assert drawn(found, 80, 24)[2].startswith("orders: "), "one line on a screen"
    assert len(drawn(found, 80, 24)) <= 24
    del found["config_fault"]  # of an older version
    assert drawn(found, 160)[1].startswith("orders: ")


def test_what_goes_on_in_another_line_is_indented_and_whole() -> None:
    why = "the records of offsets 5000 to 5999 are gone, which nobody has copied, " * 5
    found = answer(flow(replace(partition("payments", 3, Doing.STOPPED, "source_records_gone"), detail=why)))
    lines = drawn(found, 80)
    [first] = [number for number, line in enumerate(lines) if line.startswith("  payments[3] stopped")]
    others = lines[first + 1 :]
    assert len(others) >= 4
    assert all(line.startswith("      ") and line[6] != " " for line in others), others
    assert max(map(len, lines)) <= 80
    assert why.strip() in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("width", [80, 160])
def test_every_state_is_drawn(width: int) -> None:
    lines = drawn(answer(EVERY_STATE), width)
    assert max(map(len, lines)) <= width, lines
    text = " ".join(" ".join(lines).split())
    for state, count in {"stopped": 2, "waiting": 1, "undecided": 1, "paused": 1, "gone": 1, "copying": 7}.items():
        assert f"{count} {state}" in lines[2]
    assert "lag 120 records, 2.0 s" in lines[3]
    [row] = [line for line in lines if line.split()[:1] == ["payments"]]
    assert row.split() == ["payments", "40", "2.0", "s", "4,000", "1", "stopped,", "1", "waiting,", "2", "copying"]
    assert "payments[3] stopped source_records_gone at 5,000: offsets 5000 to 5999 are gone" in text
    assert "payments[2] waiting target_not_ready at 5,000" in text


def test_what_comes_from_a_cluster_is_made_printable() -> None:
    text = "\n".join(drawn(answer(EVERY_STATE), 160))
    assert printable(HOSTILE) in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [80, 160])
def test_many_fit_the_terminal(width: int) -> None:
    for height in (24, 50):
        lines = drawn(answer(MANY), width, height)
        assert max(map(len, lines)) <= width
        assert sum("… and" in line for line in lines) == 2, "what is left out is said"
    assert len(drawn(answer(EVERY_STATE), width, 24)) <= 24


@pytest.mark.tier("default")
def test_schemas_are_counted_and_conflicts_named_and_a_small_terminal_holds_them() -> None:
    found = answer(replace(EVERY_STATE, schemas=SCHEMAS))
    lines = drawn(found, 200)
    assert lines[4] == "  schemas of 5 subjects: 2 in sync, 2 waiting, 1 refused"
    assert lines[5] == f"  {printable(HOSTILE)} version 2 (id 7) refused: {printable(REFUSED.reason)}"
    many = replace(SCHEMAS, conflicts=(REFUSED,) * 500)
    for height in (24, 50):
        small = drawn(answer(replace(EVERY_STATE, schemas=many)), 80, height)
        assert len(small) <= height
        assert any("more that can't go over" in line for line in small)
    away = replace(SCHEMAS, conflicts=(), refused=0, reason="no answer")
    assert drawn(answer(replace(EVERY_STATE, schemas=away)), 200)[4].endswith("2 waiting; no answer")


def test_what_is_paused_and_limited_stands_above_the_topics_and_a_small_terminal_holds_it() -> None:
    found = answer(replace(EVERY_STATE, paused=PAUSED, rates=RATES))
    assert drawn(found, 160)[4:7] == [
        f"  events is paused by ann {printable(HOSTILE)} (it is moved), since 2023-11-14T22:13:20Z",
        "  the flow is copied with at most 500 records/s, as the flow file says",
        "  payments is copied with at most 2,048 bytes/s, set by ann",
    ]
    assert found["flows"][0]["rates"]["payments"] == {
        "records_per_s": None,
        "bytes_per_s": 2_048,
        "by": "ann",
        "at_ms": 1,
    }
    left = drawn(answer(replace(EVERY_STATE, paused=PAUSED, rates=RATES, taken_out=("events", "payments"))), 160)
    assert left[4].startswith("  events (no longer in the flow file) is paused by ann")
    assert left[6].startswith("  payments (no longer in the flow file) is copied with at most")
    many = answer(replace(EVERY_STATE, rates={f"t{n}{'x' * 90}": RateLimit(records_per_s=n + 1) for n in range(900)}))
    for height in (24, 50):
        lines = drawn(many, 80, height)
        assert len(lines) <= height
        assert max(map(len, lines)) <= 80
        assert any("more that are paused or limited" in line for line in lines)
    for key in ("paused", "paused_count", "rates", "rate_count", "taken_out"):
        del found["flows"][0][key]  # of an older version
    assert drawn(found, 160)[4].split()[0] == "topic"


@contextmanager
def serving(token: str) -> Iterator[str]:
    """A process that answers; its address."""

    class Silent(WSGIRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    views = [EVERY_STATE]
    web = Web(lambda: views, Metrics(lambda: views, "1", 10), lambda: b"", lambda: answer(EVERY_STATE), token)
    with make_server("127.0.0.1", 0, web, handler_class=Silent) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def run(tmp_path: Path, metrics: str, *arguments: str) -> int:
    path = tmp_path / "flows.yaml"
    (tmp_path / "s3cret").write_text("s3cret")
    (tmp_path / "other").write_text("other")
    path.write_text(FILE.format(metrics.replace("token: ", f"token: file:{tmp_path}/")))
    return main.invoke(["top", "-c", str(path), *arguments])


def test_a_process_is_asked_where_the_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving("s3cret") as address:
        port = address.rpartition(":")[2]
        assert run(tmp_path, f"metrics: {{listen: '{address}', token: s3cret}}", "--json") == 0
        assert json.loads(capsys.readouterr().out) == answer(EVERY_STATE)
        assert run(tmp_path, f"metrics: {{listen: '0.0.0.0:{port}', token: s3cret}}") == 0
        assert "orders: berlin → paris running" in capsys.readouterr().out
        assert run(tmp_path, f"metrics: {{listen: '{address}', token: other}}") == 3
        assert "wants another token" in capsys.readouterr().err
        assert run(tmp_path, "metrics: {listen: '127.0.0.1:1', token: s3cret}", "--address", address, "--once") == 0


def test_no_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "") == 2
    assert "no metrics.listen" in capsys.readouterr().err
    assert run(tmp_path, "metrics: {listen: '127.0.0.1:1'}") == 3
    assert "no process answers at http://127.0.0.1:1/flows" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "text"), [(None, "?"), (0, "0 B"), (1536, "1.5 KiB"), (5 * 1024**4, "5,120 GiB")])
def test_sizes(count: float | None, text: str) -> None:
    assert size(count) == text


class LiveTop:
    """`top` on a terminal of 80 columns and 24 lines of its own, whose keys reach it."""

    def __init__(self, path: Path, *arguments: str) -> None:
        self._keys, self._terminal = pty.openpty()
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.settings = termios.tcgetattr(self._terminal)
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, "top", "-c", str(path), "--every", "0.2", *arguments],
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            start_new_session=True,
            cwd=ROOT,
            env={**environment, "TERM": "xterm-256color"},
        )
        self.said = b""

    def wait(self, text: bytes, since: int = 0) -> None:
        """Until the terminal was told `text`, behind the first `since` bytes."""
        deadline = time.monotonic() + WAIT_S_MAX
        while text not in self.said[since:]:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {self.said[-3_000:]!r}"
            if select.select([self._keys], [], [], left)[0]:
                self.said += os.read(self._keys, 65_536)

    def press(self, keys: bytes) -> int:
        """Type `keys`, and return its exit code."""
        os.write(self._keys, keys)
        code = self._process.wait(WAIT_S_MAX)
        while select.select([self._keys], [], [], 0)[0]:
            self.said += os.read(self._keys, 65_536)
        return code

    def settings_now(self) -> object:
        """The terminal's modes."""
        return termios.tcgetattr(self._terminal)

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        os.close(self._keys)
        os.close(self._terminal)


@pytest.mark.tier("default")
def test_it_is_drawn_again_and_again_on_a_terminal_until_control_c(tmp_path: Path) -> None:
    path = tmp_path / "flows.yaml"
    with serving("") as address:
        path.write_text(FILE.format(f"metrics: {{listen: '{address}'}}"))
        live = LiveTop(path)
        try:
            live.wait(FLOW_LINE)
            live.wait(FLOW_LINE, live.said.index(FLOW_LINE) + 1)  # it is drawn a second time
            assert live.said.startswith(ALTERNATE_SCREEN)
            frame = live.said.split(HOME)[-2].decode()
            lines = [ESCAPES.sub("", line) for line in frame.splitlines()]
            assert len(lines) == 24
            assert any("payments" in line for line in lines), lines
            assert max(map(len, lines)) <= 80
            settings, code = live.settings_now(), live.press(b"\x03")
            assert (code, settings, live.settings_now()) == (0, live.settings, live.settings)
        finally:
            live.close()
    assert b"Traceback" not in live.said
    left = live.said[live.said.rindex(MAIN_SCREEN) :]
    assert ESCAPES.sub("", left.decode()).strip() in ("", "^C"), left
    assert live.said.rindex(CURSOR_SHOWN) > live.said.rindex(CURSOR_HIDDEN), "the cursor is back"


@pytest.mark.tier("default")
def test_a_process_that_stops_answering_is_named_on_the_terminal_and_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "flows.yaml"
    with serving("") as address:
        path.write_text(FILE.format(f"metrics: {{listen: '{address}'}}"))
        live = LiveTop(path)
        live.wait(FLOW_LINE)
    try:
        live.wait(b"no process answers at")
        assert live.press(b"\x03") == 0
        assert b"Traceback" not in live.said
    finally:
        live.close()
