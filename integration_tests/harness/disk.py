"""Brokers whose disk can be filled up and emptied again.

A full disk kills Kafka at the first write; after `free_disk` it can be started again. The embedded broker refuses
writes until then.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import uuid
from typing import Any, Protocol

from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_container import DATA, IMAGE, KafkaContainer

DISK_MIB = 96


class Cramped(BrokerHandle, Protocol):
    """A broker on a disk of its own."""

    def survives(self) -> bool:
        """Whether the broker must outlive a full disk."""

    def fill_disk(self) -> None:
        """From now on no file can grow."""

    def free_disk(self) -> None:
        """There is disk space again."""


class CrampedEmbedded(EmbeddedBroker):
    """A filesystem in memory stands in for the disk. Who may not mount one gets a limit on files' sizes."""

    _mounted = False

    def start(self) -> None:
        """See `BrokerHandle`."""
        if not self._mounted:
            self._data.mkdir(parents=True, exist_ok=True)
            options = ["-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs"]
            self._mounted = not subprocess.run(["mount", *options, str(self._data)], stderr=subprocess.PIPE).returncode
        super().start()

    def survives(self) -> bool:
        """Whether the broker must outlive a full disk: its reserve is of no use against a limit."""
        return self._mounted

    def fill_disk(self) -> None:
        """See `Cramped`. The limit is that of the running process: the next start has none."""
        if not self._mounted:
            self._limit(1)
            return
        with open(self._data / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))

    def free_disk(self) -> None:
        """See `Cramped`."""
        if self._mounted:
            (self._data / "filler").unlink()
        elif self.alive():
            self._limit(resource.RLIM_INFINITY)

    def stop(self) -> None:
        """See `BrokerHandle`."""
        super().stop()
        if self._mounted:
            subprocess.run(["umount", str(self._data)], check=True)
            self._mounted = False

    def _limit(self, file_bytes_max: int) -> None:
        _, hard = resource.prlimit(self._running.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._running.pid, resource.RLIMIT_FSIZE, (file_bytes_max, hard))


class CrampedKafka(KafkaContainer):
    """A volume in memory stands in for the disk. A second container keeps it while Kafka is dead, and fills it."""

    def __init__(self) -> None:
        super().__init__()
        self._volume = f"eos-disk-{uuid.uuid4().hex[:8]}"
        self._container.with_volume_mapping(self._volume, DATA, "rw")
        self._keeper: Any = None

    def start(self) -> None:
        """See `BrokerHandle`."""
        client = self._container.get_docker_client().client
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={DISK_MIB}m,mode=1777"}
        client.volumes.create(self._volume, driver="local", driver_opts=options)
        command = ["sh", "-c", "exec sleep infinity"]
        mounted = {self._volume: {"bind": DATA, "mode": "rw"}}
        self._keeper = client.containers.run(IMAGE, entrypoint=command, volumes=mounted, detach=True, user="root")
        super().start()

    def survives(self) -> bool:
        """See `Cramped`."""
        return False

    def fill_disk(self) -> None:
        """See `Cramped`."""
        self._keeper.exec_run(["dd", "if=/dev/zero", f"of={DATA}/filler", "bs=64k"])

    def free_disk(self) -> None:
        """See `Cramped`."""
        code, output = self._keeper.exec_run(["rm", f"{DATA}/filler"])
        assert code == 0, output.decode()

    def stop(self) -> None:
        """See `BrokerHandle`."""
        client = self._container.get_docker_client().client
        super().stop()
        if self._keeper is not None:
            self._keeper.remove(force=True)
        client.volumes.get(self._volume).remove(force=True)
