"""Kafka's own command-line tools, started from the Kafka image on the host's network."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from integration_tests.harness.kafka_container import IMAGE

# What the scripts in Kafka's bin directory start; an image may come without them.
TOOLS: Mapping[str, str] = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records.sh": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features.sh": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum.sh": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups.sh": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
JAVA = "java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class KafkaTools:
    """One container in which tools are run one after the other. `start`, `run` often, `stop`."""

    def __init__(self, bootstrap: str) -> None:
        """`bootstrap` is an address on this host."""
        testcontainers_config.ryuk_disabled = True
        self._bootstrap = bootstrap
        self._container = DockerContainer(IMAGE).with_envs(CLASSPATH="/opt/kafka/libs/*")
        self._container.with_kwargs(network_mode="host", entrypoint=["sleep", "infinity"])

    def start(self) -> None:
        """Start the container."""
        self._container.start()

    def stop(self) -> None:
        """Remove it."""
        self._container.stop(force=True)

    def write(self, path: str, text: str) -> None:
        """A file for a tool to read."""
        self._shell(f"printf %s {shlex.quote(text)} > {path}")

    def run(self, tool: str, *options: str, lines: str = "") -> str:
        """Run a tool with `lines` on its stdin; what it says. Raises AssertionError unless it ends with 0."""
        command = shlex.join([TOOLS[tool], "--bootstrap-server", self._bootstrap, *options])
        return self._shell(f"printf %s {shlex.quote(lines)} | {JAVA} {command}")

    def _shell(self, command: str) -> str:
        result = self._container.get_wrapped_container().exec_run(["sh", "-c", command], demux=True)
        # One behind the other: read together, a line of one can stand in the middle of a line of the other.
        text = "".join(said.decode(errors="replace") for said in result.output if said is not None)
        assert result.exit_code == 0, f"{command}: {text}"
        return text
