"""What commands without a table say to people fits a terminal of 80 columns; in a file or pipe each line stays one."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from cli import main
from cli.commands import control, position, position_set, rebuild_control
from cli.options import say, show_failed
from replicator.flow.controlling import ChangedSettings
from replicator.flow.rebuilding import RebuildPlan
from replicator.inspect.positions import FlowPositions, HeldPosition
from replicator.jobs.position_plan import PlannedPosition
from replicator.model.checkpoint import Evidence, Position
from replicator.model.commands import Command
from replicator.model.errors import Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.state.control_rebuild import RebuiltControl
from replicator.state.generation import Generation, Kind, Phase
from replicator.state.run_settings import Paused, RateLimit, RunSettings
from tests.replicator.flow import fakes

ROOT = Path(__file__).parents[2]
SENTENCE = "the flow has had this file before, and workers run the settings of another generation than that"
NOW_MS = 1_800_000_000_000
COPIED = "eos-replicate incident resolve 3f2a9c1d8e70 --restart-topic --why TEXT --flow orders -c FILE"


class Terminal(StringIO):
    """A stream of a terminal."""

    def isatty(self) -> bool:
        """See StringIO."""
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, saying: Callable[[], None]) -> list[str]:
    """The lines that it prints on either stream of a terminal of 80 columns."""
    stream = Terminal()
    with monkeypatch.context() as patched:
        patched.setenv("COLUMNS", "80")
        patched.setattr(sys, "stdout", stream)
        patched.setattr(sys, "stderr", stream)
        saying()
    return stream.getvalue().splitlines()


def of_settings() -> None:
    """What `rate`, `pause` and `resume` say."""
    paused = Paused(by="ann@" + "h" * 20, at_ms=NOW_MS, why=SENTENCE)
    limit = RateLimit(records_per_s=5_000_000, bytes_per_s=1_000_000_000, by="ann@" + "h" * 20, at_ms=NOW_MS)
    after = RunSettings(paused={"payments": paused}, rates={"payments": limit})
    control._show(fakes.flow(), frozenset(), ChangedSettings(RunSettings(), after), "set")


def of_positions() -> None:
    """What `position show` says."""
    row = HeldPosition(
        topic="payments.card-transactions",
        partition=3,
        target_topic="west.payments.card-transactions",
        position=9_999_999_999,
        source_topic_id="Zk3bVQ1xQ0mQeV8uVb1l3A",
        target_topic_id="Zk3bVQ1xQ0mQeV8uVb1l3B",
        generation=12,
        owner="worker-7.replication.svc.cluster.local:1:4f2a",
        committed_ms=NOW_MS,
        source_end=19_999_999_999,
        lag_records=10_000_000_000,
        wrong=SENTENCE,
    )
    position._show(
        FlowPositions(
            flow="orders",
            source="east",
            target="west",
            generation=12,
            runs=SENTENCE,
            target_cluster="id",
            partitions=(row,),
            source_error=SENTENCE,
        )
    )


def of_planned() -> None:
    """What `position set` says."""
    log = LogEnds("S", 0, 30, 30)
    evidence = Evidence(
        generation=1, owner="", source_topic="t", source_cluster="c", source_topic_id="S", target_topic_id="T"
    )
    at, to = Partition("payments.card-transactions", 0), Partition("west.payments.card-transactions", 0)
    planned = PlannedPosition(
        source=at,
        target=to,
        before=Position(9_999_999_999, evidence),
        after=6_666_666_666,
        command=Command.ADOPT,
        claim=None,
        source_log=log,
        target_log=log,
        moving=True,
    )
    position_set._show("at_least_once", {at: planned})


def of_rebuilt() -> None:
    """What `rebuild-control` says."""
    opened = Generation(
        9, Phase.OPEN, 4, Kind.FROZEN, failed_over={f"payments.card-transactions-{number}": 3 for number in range(5)}
    )
    earlier = tuple(Generation(number, Phase.OPEN, 12) for number in range(1, 9))
    rebuild_control._show("orders", RebuildPlan(RebuiltControl(SENTENCE, earlier, opened), 12, 12, 12), to_ask=True)


def of_errors() -> None:
    """Why nothing is known of a flow, and what went wrong."""
    show_failed({"orders": Unreachable(SENTENCE)})
    main._failed(Unreachable(f"{SENTENCE}:\n  {SENTENCE}"))


@pytest.mark.parametrize("said", [of_settings, of_positions, of_planned, of_rebuilt, of_errors])
def test_it_fits_a_terminal(said: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_a_terminal(monkeypatch, said)
    assert len(lines) > 2
    assert [line for line in lines if len(line) > 80] == []


def test_a_command_that_is_to_be_copied_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_a_terminal(monkeypatch, lambda: say(f"error: {SENTENCE}: {COPIED}", err=True))
    assert f"      {COPIED}" in lines


def test_a_line_stays_one_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    show_failed({"orders": Unreachable(SENTENCE)})
    assert capsys.readouterr().err == f"error: flow orders: {SENTENCE}\n"


@pytest.mark.tier("full")
def test_the_width_is_that_of_the_terminal_on_which_it_is_said(tmp_path: Path) -> None:
    """Standard error is a terminal, and standard output a pipe."""
    flows = "\n".join(f"  flow-{number}: {{ source: a, target: b, topics: [t{number}] }}" for number in range(30))
    file = tmp_path / "f.yaml"
    file.write_text(
        "clusters:\n"
        '  a: { properties: { bootstrap.servers: "127.0.0.1:1" } }\n'
        '  b: { properties: { bootstrap.servers: "127.0.0.1:2" } }\n'
        f"flows:\n{flows}\n"
    )
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    command = [sys.executable, "-m", "cli.main", "rate", "-c", str(file)]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=writing, cwd=ROOT, env=environment, timeout=60, check=False
    )
    os.close(writing)
    said = b""
    while chunk := _read(reading):
        said += chunk
    os.close(reading)
    lines = said.decode().splitlines()
    assert (done.returncode, done.stdout) == (2, b"")
    assert len(lines) > 4, lines
    assert [line for line in lines if len(line) > 60 and str(file) not in line] == []


def _read(descriptor: int) -> bytes:
    """What a terminal still has, empty at its end, which Linux tells by an error once its other side is closed."""
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""
