"""Children die with the demo, however it ends, and say what went wrong with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.demo import processes
from cli.demo.model import DemoFailed
from cli.demo.processes import BrokerProcess, Child

pytestmark = pytest.mark.tier("default")  # brokers in processes

GONE_S_MAX = 10.0
PARENT = """
import sys, time
from pathlib import Path
from cli.demo.processes import Child
child = Child(["forever"], Path(sys.argv[1]), {"PYTHONPATH": sys.argv[2]})
print(child.process.pid, child.line(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A directory with small modules to run as children."""
    (tmp_path / "forever.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    (tmp_path / "broken.py").write_text("raise SystemExit('no such thing')\n")
    (tmp_path / "arguments.py").write_text("import sys\nprint(__name__, *sys.argv[1:], flush=True)\n")
    return tmp_path


def path_with(modules: Path) -> str:
    """PYTHONPATH with these modules before what it has already: this tree may be there, and not be installed."""
    return os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))


def child(modules: Path, *arguments: str) -> Child:
    return Child(arguments, modules / "log", {"PYTHONPATH": path_with(modules)})


def gone(pid: int) -> bool:
    """Whether the process ends in time; a zombie has ended."""
    deadline = time.monotonic() + GONE_S_MAX
    while time.monotonic() < deadline:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
        if not state or state.startswith("Z"):
            return True
        time.sleep(0.05)
    return False


def test_a_child_gets_its_arguments_and_is_the_main_module(modules: Path) -> None:
    asked = child(modules, "arguments", "a", "b c")
    assert asked.line() == "__main__ a b c"
    assert asked.stop() in (0, -signal.SIGTERM)


def test_a_child_dies_when_its_parent_is_killed(modules: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(modules / "log"), path_with(modules)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid, said = parent.stdout.readline().split()
    assert said == "here"
    os.kill(int(pid), 0)  # it lives
    parent.kill()
    parent.wait()
    assert gone(int(pid))


def test_a_child_is_told_apart_from_one_that_is_still_there(modules: Path) -> None:
    living = child(modules, "forever")
    assert living.line() == "here"
    assert living.running()
    living.kill()
    assert not living.running()
    assert living.process.returncode == -signal.SIGKILL
    living.kill()  # once more does no harm


def test_a_child_that_ends_without_a_word_is_quoted(modules: Path) -> None:
    with pytest.raises(DemoFailed, match=r"broken ended with 1\n +no such thing"):
        child(modules, "broken").line()


def test_a_child_that_says_nothing_in_time_is_named(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_S_MAX", 0.5)
    silent = child(modules, "forever")
    silent.line()
    with pytest.raises(DemoFailed, match="forever said nothing"):
        silent.line()
    silent.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    started = BrokerProcess("target", tmp_path)
    yield started
    started.kill()


def test_a_broker_comes_back_on_its_port(broker: BrokerProcess) -> None:
    broker.ready()
    address = broker.address
    assert not address.endswith(":0")
    broker.kill()
    with pytest.raises(DemoFailed, match="ended by itself"):
        broker.check()
    broker.restart()
    assert broker.address == address
    broker.check()
