"""Rights of reading follow from source to target topics, between two brokers that check rights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType
from confluent_kafka.admin import ResourceType as On

from integration_tests.harness import acls as rights
from integration_tests.harness import clients
from integration_tests.harness.broker import Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.guarded import USER, guard, login
from integration_tests.harness.secured import Secured, secured_broker


@pytest.fixture
def secured_pair(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, Secured]]:
    """Two brokers that check rights. The flow's user may do everything on both."""
    directory = tmp_path_factory.mktemp("secured")
    (directory / "source").mkdir()
    (directory / "target").mkdir()
    with secured_broker(kind, directory / "source") as source, secured_broker(kind, directory / "target") as target:
        for each in (source, target):
            clients.warm_up(each.bootstrap)
        yield source, target


def acls(secured: Secured, topic: str) -> set[tuple[str, str, str]]:
    """Principal, operation and permission of each ACL that names this topic."""
    wanted = AclBindingFilter(
        On.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        None,  # type: ignore[arg-type]  # any
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    found: list[AclBinding] = secured.admin.describe_acls(wanted).result(clients.TIMEOUT_S)
    return {
        (each.principal, AclOperation(each.operation).name, AclPermissionType(each.permission_type).name)
        for each in found
    }


def plan_of(copying: Copying) -> dict[str, Any]:
    """What `plan --json` says of the flow."""
    command = [sys.executable, "-m", "cli.main", "plan", "-c", str(copying.file.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr + done.stdout
    return dict(json.loads(done.stdout)["flows"][0])


@pytest.mark.tier("extended", kafka="full")
def test_who_may_read_the_source_topic_may_read_its_copy(secured_pair: tuple[Secured, Secured], tmp_path: Path) -> None:
    source, target = secured_pair
    copying = Copying(source, target, tmp_path, partitions=1, sync_acls=True, limits={"discovery_interval_ms": 500})
    try:
        copying.load.plain(10)
        source.allow("bob", "TOPIC", copying.topic, "READ", "DESCRIBE", "WRITE")
        source.allow("alice", "TOPIC", copying.topic[:-1], "READ", prefix=True)
        planned = plan_of(copying)
        assert {(it["topic"], it["operation"], it["principal"], it["allowed"]) for it in planned["acls"]} == {
            (f"{copying.topic}.copy", operation, f"User:{who}", True)
            for operation, who in (("READ", "bob"), ("DESCRIBE", "bob"), ("READ", "alice"))
        }
        assert any("to create ACLs" in right for right in planned["unchecked"])
        worker = copying.running()
        created = worker.wait_event("acls_created", topic=f"{copying.topic}.copy")
        assert "allow READ to User:alice from *" in created["acls"]
        expected = {("User:bob", "READ", "ALLOW"), ("User:bob", "DESCRIBE", "ALLOW"), ("User:alice", "READ", "ALLOW")}
        assert acls(target, f"{copying.topic}.copy") == expected
        assert plan_of(copying)["acls"] == []
        mark = worker.mark()
        source.take_away("bob", "TOPIC", copying.topic, "READ")
        left = worker.wait_event("acls_left", after=mark)
        assert left["acls"] == "allow READ to User:bob from *"
        assert acls(target, f"{copying.topic}.copy") == expected
        copying.finish(worker)
    finally:
        copying.close()


@pytest.mark.tier("full")
def test_a_denial_that_names_the_flows_own_user_does_not_keep_it_from_its_target(
    secured_pair: tuple[Secured, Secured], tmp_path: Path
) -> None:
    source, target = secured_pair
    copying = Copying(source, target, tmp_path, via=login(target), partitions=1, limits={"discovery_interval_ms": 500})
    try:
        two = guard(target, copying, "target").two
        target.allow(USER, "BROKER", "kafka-cluster", "ALTER")
        target.allow(USER, "GROUP", f"{copying.group}.workers", "DESCRIBE", "READ")
        copying.file.write(sync_acls=True)
        source.allow("bob", "TOPIC", two.first, "DESCRIBE_CONFIGS")
        for who, topic in ((USER, two.first), ("*", two.second)):
            read = (On.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{who}", "*", AclOperation.READ)
            rights.create(source.admin, AclBinding(*read, AclPermissionType.DENY))
        worker = copying.running()
        worker.wait_event("acls_created", topic=two.copy_of(two.first))
        told = worker.wait_event("acls_not_created")["reason"]
        warned = [it["message"] for it in plan_of(copying)["findings"] if it["kind"] == "right"]
        for topic, who in ((two.first, USER), (two.second, "*")):
            assert [it for it in warned if f"User:{who} from * on {two.copy_of(topic)} would keep the flow" in it], (
                warned
            )
            assert f"deny READ to User:{who} from * on {two.copy_of(topic)} would keep the flow itself from it" in told
        two.put(two.first, [b"on"])
        two.wait_position(two.first, 1)
        two.assert_second_goes_on()
        for topic in (two.first, two.second):
            assert not [acl for acl in acls(target, two.copy_of(topic)) if acl[2] == "DENY"]
        two.assert_stops(worker, 0)
    finally:
        copying.close()
