"""The rights that `eos-replicate rights` names are enough: with them, and no others, each command works."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.guarded import USER, Side, login
from integration_tests.harness.kafka_tools import KafkaTools
from integration_tests.harness.secured import Secured, secured_broker

RESOURCES = {"topic": "TOPIC", "group": "GROUP", "transactional-id": "TRANSACTIONAL_ID", "cluster": "BROKER"}
OPERATIONS = {"DescribeConfigs": "DESCRIBE_CONFIGS", "AlterConfigs": "ALTER_CONFIGS"}
COMMAND_S_MAX = 120.0
MORE = 300
pytestmark = pytest.mark.tier("full")


@pytest.fixture
def secured(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that checks rights, on which nobody but the admin has any yet."""
    with secured_broker(kind, tmp_path_factory.mktemp("secured")) as broker:
        clients.warm_up(broker.bootstrap)
        yield broker


def said(copying: Copying, *command: str) -> str:
    """What a command prints that must end well."""
    asked = [sys.executable, "-m", "cli.main", *command, "-c", str(copying.file.path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=COMMAND_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def grant(secured: Secured, copying: Copying, side: Side) -> None:
    """By Kafka's own tool with the printed commands, where it is real Kafka; else as the JSON says."""
    if secured.kind == "kafka":
        lines = said(copying, "rights", "--acls", f"--{side}-principal", f"User:{USER}").splitlines()
        headings = [number for number, line in enumerate(lines) if line.startswith("#")] + [len(lines)]
        [(begin, end)] = [each for each in pairwise(headings) if f", {side} cluster " in lines[each[0]]]
        tools = KafkaTools(secured.bootstrap)
        tools.start()
        try:
            for line in lines[begin + 1 : end]:
                words = shlex.split(line)
                assert words[0] == "kafka-acls"
                assert words[1:3] == ["--bootstrap-server", secured.addresses.sasl]
                tools.run("kafka-acls.sh", *words[3:])
        finally:
            tools.stop()
        return
    [flow] = json.loads(said(copying, "rights", "--json"))["flows"]
    for right in flow["rights"]:
        if right["side"] == side:
            name = right["name"] or "kafka-cluster"
            operations = [OPERATIONS.get(each, each.upper()) for each in right["operations"]]
            secured.allow(USER, RESOURCES[right["resource"]], name, *operations, prefix=right["prefixed"])


@pytest.mark.parametrize("side", ["source", "target"])
def test_each_command_works_with_them_and_no_others(
    side: Side, secured: Secured, source: BrokerHandle, target: BrokerHandle, tmp_path: Path
) -> None:
    if side == "source":
        copying = Copying(secured, target, tmp_path, partitions=2, source_via=login(secured))
    else:
        copying = Copying(source, secured, tmp_path, partitions=2, via=login(secured))
    try:
        code, _ = copying.asked("plan")
        assert code == 3, "without any right"
        grant(secured, copying, side)
        code, found = copying.asked("plan")
        assert (code, found["findings"]) == (0, []), found
        copying.load.plain(MORE)
        worker = copying.running("", "--shared")
        copying.wait_positions()
        assert [event["event"] for event in worker.events if event["level"] in ("warning", "error")] == []
        said(copying, "status", "--check")
        said(copying, "incident", "list")
        assert worker.stop() == 0, worker.tail()
        copying.file.write(lanes=2)
        clients.grow_topic(copying.source, copying.topic, 3)
        worker = copying.running("", "--shared")
        copying.finish(worker)
    finally:
        copying.close()
