"""The systems that are measured, each as a process of its own: eos-replicate, and MirrorMaker 2 from the same image."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import IO, Protocol

from benchmarks import load
from benchmarks.clusters import IMAGE, Kafka, docker
from integration_tests.harness.broker import free_port
from integration_tests.harness.clients import settle

HERE = Path(__file__).parent
TICKS = os.sysconf("SC_CLK_TCK")


class System(Protocol):
    """Something that copies one topic. `copy` is the topic's name on the target."""

    name: str
    copy: str

    def start(self) -> None:
        """Start the process."""

    def pid(self) -> int:
        """Its process id."""

    def stop(self) -> None:
        """Stop it and clean up."""


class Killable(System, Protocol):
    """One that can be killed and started again where it was."""

    def kill(self) -> None:
        """SIGKILL; returns once it is gone."""


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_peak_mib(pid: int) -> float:
    """Highest resident memory of a process so far."""
    return _status_mib(pid, "VmHWM")


def rss_mib(pid: int) -> float:
    """Resident memory of a process now, with what it shares."""
    return _status_mib(pid, "VmRSS")


def _status_mib(pid: int, key: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def resident_mib(root: int) -> float:
    """Resident memory of a process and all that it started, now; memory that processes share is shared out (PSS)."""
    return sum(resident_by_process(root).values())


def resident_by_process(root: int) -> dict[tuple[int, str], float]:
    """The same of each process, in MiB, by its id and name."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            begin, _, rest = status.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(status.parent.name)
        names[pid] = begin.partition("(")[2]
        children.setdefault(int(rest.split()[1]), []).append(pid)
    found, todo = dict[tuple[int, str], float](), [root]
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pss = next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
        found[pid, names.get(pid, "")] = pss / 1024
    return found


class Eos:
    """`eos-replicate run` on a flow of one topic, as `file` says; it logs to `log`."""

    name = "eos-replicate"

    def __init__(
        self,
        source: Kafka,
        target: Kafka,
        topic: str,
        directory: Path,
        delivery: str = "exactly_once",
        tree: Path = HERE.parent,
        lanes: int = 1,
        options: Sequence[str] = (),
        module: str = "cli.main",
        engine: str = "records",
    ) -> None:
        """`tree`: the checkout that is run; `options`: more of `run`; `module`: what is started in its place. `engine`
        as in the flow file."""
        self.options, self._module = options, module
        tag = uuid.uuid4().hex[:8]
        self.copy, self.flow = f"{tag}.{topic}", f"bench-{tag}"
        self._tag, self._tree, self.log = tag, tree, directory / f"eos-{tag}.log"
        self.file = directory / f"eos-{tag}.yaml"
        self.file.write_text(
            f"""clusters:
  a: {{properties: {{bootstrap.servers: "{source.bootstrap}"}}}}
  b: {{properties: {{bootstrap.servers: "{target.bootstrap}"}}}}
flows:
  {self.flow}:
    source: a
    target: b
    topics: [{topic}]
    rename: "{tag}.{{topic}}"
    delivery: {delivery}
    lanes: {lanes}
"""
            + (f"    engine: {engine}\n" if engine != "records" else "")  # a `tree` may be older than the key
        )
        self._process: subprocess.Popen[bytes] | None = None

    def copy_of(self, topic: str) -> str:
        """The target topic of a source topic that the flow selects."""
        return f"{self._tag}.{topic}"

    def start(self) -> None:
        """See System."""
        log: IO[bytes] = self.log.open("ab")
        command = [sys.executable, "-m", self._module, "run", "-c", str(self.file), "--log-format", "json"]
        command += self.options
        environment = {**os.environ, "PYTHONPATH": str(self._tree)}
        self._process = subprocess.Popen(command, stderr=log, cwd=self._tree, env=environment)
        log.close()

    def pid(self) -> int:
        """See System."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """See Killable."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """See System."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()


class Pipe:
    """`benchmarks.pipe`: what Fetch and Produce alone take."""

    name = "raw pipe"

    def __init__(self, source: Kafka, target: Kafka, topic: str) -> None:
        """`topic` has `load.PARTITIONS` partitions."""
        self.copy = f"pipe-{uuid.uuid4().hex[:8]}"
        self._addresses, self._topic = (source.bootstrap, target.bootstrap), topic
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """See System."""
        load.create(self._addresses[1], self.copy)
        settle(self._addresses[1], self.copy, load.PARTITIONS)
        command = [sys.executable, "-m", "benchmarks.pipe", *self._addresses, self._topic, self.copy]
        self._process = subprocess.Popen(command, cwd=HERE.parent)

    def pid(self) -> int:
        """See System."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """See System."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class MirrorMaker:
    """MirrorMaker 2 in dedicated mode with exactly-once, from the same image as the brokers."""

    name = "MirrorMaker 2"

    def __init__(self, source: Kafka, target: Kafka, topic: str, directory: Path) -> None:
        tag = uuid.uuid4().hex[:8]
        names = {"A": f"a{tag}", "B": f"b{tag}", "SOURCE": source.bootstrap, "TARGET": target.bootstrap}
        text = Template((HERE / "mm2.properties").read_text()).substitute(names, TOPIC=topic, PORT=free_port())
        self.copy = f"a{tag}.{topic}"
        self._file = directory / f"mm2-{tag}.properties"
        self._file.write_text(text)
        self._container = f"eos-bench-mm2-{tag}"

    def start(self) -> None:
        """See System."""
        docker(
            "run", "-d", "--name", self._container, "--network", "host", "--entrypoint", "java",
            "-v", f"{self._file}:/mm2.properties:ro", IMAGE, "-Xmx2g", "-cp", "/opt/kafka/libs/*",
            "org.apache.kafka.connect.mirror.MirrorMaker", "/mm2.properties",
        )  # fmt: skip

    def pid(self) -> int:
        """See System."""
        return int(docker("inspect", "-f", "{{.State.Pid}}", self._container))

    def kill(self) -> None:
        """See Killable."""
        self.stop()

    def stop(self) -> None:
        """See System."""
        docker("rm", "-f", self._container)
