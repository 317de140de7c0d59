"""Gives a user exactly the rights that `eos-replicate rights` prints for a flow file, on one of its two clusters."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from integration_tests.harness import acls
from integration_tests.harness.guarded import USER, Side
from integration_tests.harness.kafka_tools import KafkaTools
from integration_tests.harness.secured import Secured
from tests.running.users_packages import users_packages

RESOURCES = {"topic": "TOPIC", "group": "GROUP", "transactional-id": "TRANSACTIONAL_ID", "cluster": "BROKER"}
OPERATIONS = {"DescribeConfigs": "DESCRIBE_CONFIGS", "AlterConfigs": "ALTER_CONFIGS"}
COMMAND_S_MAX = 120.0


def said(file: Path, *command: str) -> str:
    """What a command prints that must end well."""
    asked = [sys.executable, "-m", "cli.main", *command, "-c", str(file)]
    done = subprocess.run(
        asked, capture_output=True, text=True, check=False, timeout=COMMAND_S_MAX, env=users_packages()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def grant(secured: Secured, file: Path, side: Side) -> None:
    """By Kafka's own tool with the printed commands, where it is real Kafka; else as the JSON says."""
    if secured.kind == "kafka":
        _by_commands(secured, file, side)
        return
    [flow] = json.loads(said(file, "rights", "--json"))["flows"]
    for right in flow["rights"]:
        if right["side"] != side:
            continue
        every = right["prefixed"] and not right["name"]  # ACLs have no empty prefix: * is every resource
        name = "*" if every else right["name"] or "kafka-cluster"
        operations = [OPERATIONS.get(each, each.upper()) for each in right["operations"]]
        prefix = right["prefixed"] and not every
        secured.allow(USER, RESOURCES[right["resource"]], name, *operations, prefix=prefix)


def _by_commands(secured: Secured, file: Path, side: Side) -> None:
    lines = said(file, "rights", "--acls", f"--{side}-principal", f"User:{USER}").splitlines()
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


def take_all(secured: Secured) -> None:
    """Take away all rights that the user has been given by its name."""
    acls.delete(
        secured.admin,
        AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # any
            ResourcePatternType.ANY,
            f"User:{USER}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        ),
    )
