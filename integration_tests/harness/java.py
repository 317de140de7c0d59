"""Programs of Kafka's own, from the image of its brokers: they use the Java clients as nobody else does."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from string import Template

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from integration_tests.harness.broker import free_port
from integration_tests.harness.kafka_container import IMAGE

HEAP = "-Xmx512m"
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
LIBRARIES = "/opt/kafka/libs/*"
MIRROR = "org.apache.kafka.connect.mirror.MirrorMaker"
MIRROR_SETTINGS = Template("""
clusters=a,b
a.bootstrap.servers=$source
b.bootstrap.servers=$target
a->b.enabled=true
b->a.enabled=false
a->b.topics=$topic
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
emit.heartbeats.enabled=false
sync.topic.acls.enabled=false
refresh.topics.interval.seconds=2
a.consumer.isolation.level=read_committed
a.exactly.once.source.support=$exactly_once
b.exactly.once.source.support=$exactly_once
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:$port
""")


def run(main_class: str, *arguments: str, timeout_s: float = 240.0) -> str:
    """What a program writes on stdout. Raises CalledProcessError with all its output, or TimeoutExpired."""
    command = ["docker", "run", "--rm", "--network", "host", "--entrypoint", "java", IMAGE, HEAP, *QUICK]
    command += ["-cp", LIBRARIES, main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=True)
    return done.stdout


class MirrorMaker:
    """MirrorMaker 2 from `source` to `target`; the copy of a topic is called `a.TOPIC`. `settings`: more lines."""

    def __init__(
        self,
        directory: Path,
        source: str,
        target: str,
        topic: str,
        *,
        exactly_once: bool = True,
        settings: Sequence[str] = (),
    ) -> None:
        testcontainers_config.ryuk_disabled = True  # as in `kafka_container`
        file = directory / "mirror.properties"
        support = "enabled" if exactly_once else "disabled"
        text = MIRROR_SETTINGS.substitute(
            source=source, target=target, topic=topic, port=free_port(), exactly_once=support
        )
        file.write_text(text + "".join(f"{line}\n" for line in settings), encoding="utf-8")
        self._container = DockerContainer(IMAGE).with_volume_mapping(str(file), "/mirror.properties", "ro")
        self._container.with_command([HEAP, *QUICK, "-cp", LIBRARIES, MIRROR, "/mirror.properties"])
        self._container.with_kwargs(entrypoint="java", network_mode="host")

    def __enter__(self) -> MirrorMaker:
        self._container.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._container.stop(force=True)

    def kill(self) -> None:
        """SIGKILL."""
        container = self._container.get_wrapped_container()
        container.kill()
        container.wait()

    def terminate(self) -> None:
        """SIGTERM, and wait until it is gone."""
        self._container.get_wrapped_container().stop(timeout=60)

    def restart(self) -> None:
        """Start again after `kill`, with nothing but what stands on the brokers."""
        self._container.get_wrapped_container().start()

    def log_tail(self) -> str:
        """The end of its log."""
        return str(self._container.get_wrapped_container().logs(tail=60).decode(errors="replace"))
