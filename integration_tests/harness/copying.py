"""One flow under test: its source topic and writer, its file, and the processes that run it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.background import repeated
from integration_tests.harness.broker import HasAddress
from integration_tests.harness.compare import CopyVerdict, assert_exact, compare, wait_key
from integration_tests.harness.load import Load
from integration_tests.harness.map_truth import CheckedMap, checked_map
from integration_tests.harness.replicator import FlowFile, Login, Replicator
from replicator.model.names import offsets_topic
from tests.budget import LONG
from tests.running.users_packages import users_packages

PARTITIONS = 3
ASKED_S_MAX = 120.0
PACE_S = 0.02  # between two steps of a writer in the background, so that it leaves the machine to the others


class Copying:
    """A flow that copies one topic. Names are unique, so tests share brokers without meeting."""

    def __init__(
        self,
        source: HasAddress,
        target: HasAddress,
        directory: Path,
        *,
        via: Login = "",
        source_via: Login = "",
        partitions: int = PARTITIONS,
        seed: int = 1,
        source_configs: dict[str, str] | None = None,
        source_replicas: int = 1,
        **settings: Any,
    ) -> None:
        """`via` and `source_via` are what the flow uses instead of the clusters' addresses: a proxy's, or the client
        properties of a user."""
        self.name = f"flow-{uuid.uuid4().hex[:8]}"
        self.topic, self.copy = f"{self.name}.in", f"{self.name}.in.copy"
        self.source, self.target, self.partitions = source.bootstrap, target.bootstrap, partitions
        clients.create_topic(self.source, self.topic, partitions, source_configs, replicas=source_replicas)
        self.load = Load(self.source, self.topic, partitions, seed)
        self.file = FlowFile(
            directory,
            self.name,
            source_via or self.source,
            via or self.target,
            **{"topics": [self.topic], **settings},
        )
        self._processes: list[Replicator] = []

    @property
    def group(self) -> str:
        """The group without members that holds the flow's positions."""
        return f"eos-replicate.{self.name}"

    def run(
        self,
        failpoints: str = "",
        *options: str,
        environment: Mapping[str, str] | None = None,
        tree: Path | None = None,
    ) -> Replicator:
        """Start a process of the flow, with more options of the command and variables of its environment, or of another
        version of the program (`tree`); `close` ends it whatever happens."""
        started = Replicator(self.file, failpoints, environment, options, tree)
        self._processes.append(started)
        return started

    def running(self, failpoints: str = "", *options: str) -> Replicator:
        """Start a process and wait until its lane has a position and reads."""
        started = self.run(failpoints, *options)
        started.wait_event("lane_started")
        return started

    def running_frozen(self) -> Replicator:
        """Start a process of a flow that is failed over, and wait until it says so."""
        started = self.run()
        started.wait_event("failed_over")
        return started

    def asked(self, command: str) -> tuple[int, dict[str, Any]]:
        """Exit code of `plan`, `status` or `top`, and what its JSON says of the flow."""
        code, said = self.said(command)
        assert said["flows"], said
        return code, said["flows"][0]

    def killed_after(self, command: str, seconds: float | None) -> int:
        """Exit code of a command on the flow file, which is killed after so long; None: it isn't."""
        asked = [sys.executable, "-m", "cli.main", command, "-c", str(self.file.path)]
        with subprocess.Popen(asked, stdout=subprocess.DEVNULL, env=users_packages()) as running:
            try:
                return running.wait(ASKED_S_MAX if seconds is None else seconds)
            except subprocess.TimeoutExpired:
                running.kill()
                return running.wait()

    def said(self, command: str) -> tuple[int, dict[str, Any]]:
        """Exit code of a command on the flow file, and its JSON."""
        asked = [sys.executable, "-m", "cli.main", command, "-c", str(self.file.path), "--json"]
        shown = subprocess.run(
            asked, capture_output=True, text=True, check=False, timeout=ASKED_S_MAX, env=users_packages()
        )
        return shown.returncode, json.loads(shown.stdout)

    def writing(self, step: int = 150) -> AbstractContextManager[None]:
        """Write mixed records in a thread for as long as the block runs."""
        return repeated(partial(self.load.mixed, step), PACE_S)

    def wait_copied(self) -> None:
        """Write the last record of each partition and wait until a reader of the target has seen them."""
        self.load.finish()
        try:
            wait_key(self.target, self.copy, self.partitions, self.load.last)
        except AssertionError as error:
            error.add_note(self._processes[-1].tail())
            raise

    def assert_exact(self) -> None:
        """The target holds exactly what the source holds. Call once nothing runs any more."""
        records = assert_exact(self.source, self.topic, self.target, self.copy, self.partitions)
        assert records == self.load.committed

    def compare_from(self, starts: Sequence[int]) -> dict[int, CopyVerdict]:
        """Compare the copy with what the source holds from these offsets on."""
        return compare(self.source, self.topic, self.target, self.copy, self.partitions, starts)

    def finish(self, last: Replicator) -> None:
        """Everything is copied, `last` stops cleanly, and the copy is exact."""
        self.wait_copied()
        code = last.stop()
        assert code == 0, f"exit code {code}\n{last.tail()}"
        self.assert_exact()
        if LONG and offsets_topic(self.name) in clients.topics(self.target):
            self.checked_map()

    def checked_map(self) -> list[CheckedMap]:
        """Read the flow's offset map, and compare each place that it gives with both logs."""
        blocks = offsets_topic(self.name)
        return checked_map(self.source, self.topic, self.target, self.copy, self.partitions, blocks)

    def wait_stable(self) -> list[int]:
        """Return the flow's positions once no transaction is open over any of them."""
        client = clients.consumer(self.target, group_id=self.group)
        asked = [TopicPartition(self.copy, number) for number in range(self.partitions)]
        try:
            return [found.offset for found in client.committed(asked, timeout=clients.TIMEOUT_S)]
        finally:
            client.close()

    def wait_offsets(self, expected: Sequence[int], timeout_s: float) -> float:
        """Return once the flow's positions are these; how long that took in seconds."""
        began = time.monotonic()
        while (found := self.wait_stable()) != list(expected):
            late = time.monotonic() - began
            assert late < timeout_s, (
                f"positions {found} after {late:.0f} s, not {expected}\n{self._processes[-1].tail()}"
            )
            time.sleep(PACE_S)
        return time.monotonic() - began

    def wait_positions(self) -> None:
        """Return once the flow's positions have reached the ends of the source."""
        ends = [clients.stable_end(self.source, self.topic, number) for number in range(self.partitions)]
        deadline = time.monotonic() + clients.TIMEOUT_S
        while self.wait_stable() != ends:
            assert time.monotonic() < deadline, f"positions {self.wait_stable()}, ends {ends}"

    def target_ends(self) -> list[int]:
        """Where the copy's partitions end, open transactions included."""
        client = clients.consumer(self.target, isolation_level="read_uncommitted")
        try:
            return [
                client.get_watermark_offsets(TopicPartition(self.copy, number), timeout=30, cached=False)[1]
                for number in range(self.partitions)
            ]
        finally:
            client.close()

    def close(self) -> None:
        """End all processes; their logs end up in the report of a failed test."""
        for number, process in enumerate(self._processes):
            process.close()
            print(f"--- {self.name}, process {number}:\n{process.tail(120)}")
