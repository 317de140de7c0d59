"""`verify` and `reconcile --local` on the command line: of flows that were killed, changed, or run meanwhile; and maps
that can't be used."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import ASKED_S_MAX, Copying
from integration_tests.harness.two_topics import TwoTopics
from replicator.model.names import offsets_topic
from replicator.offset_map.topic import MAP_PARTITIONS
from replicator.proof import signing

pytestmark = pytest.mark.tier("full")


def asked(copying: Copying, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON and stderr of a command."""
    command = [sys.executable, "-m", "cli.main", *arguments, "-c", str(copying.file.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASKED_S_MAX)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def assert_proven(copying: Copying) -> None:
    code, found, said = asked(copying, "reconcile", "--local")
    assert (code, found.get("verdict")) == (0, "agrees"), (found, said)
    assert found["totals"] == {"same": copying.load.committed}
    code, found, said = asked(copying, "verify")
    assert (code, found.get("verdict")) == (0, "stands"), ([one["said"] for one in found["partitions"]], said)
    assert sum(one["standing"] for one in found["partitions"]) == copying.load.committed


def test_a_flow_that_was_killed_at_each_step_is_proven_exact(make_copying: MakeCopying) -> None:
    copying = make_copying()
    for step in ("before_flush@3", "before_end_txn@2", "after_end_txn@2"):
        with copying.writing():
            worker = copying.run(f"{step}=kill")
            assert worker.wait_exit() == -signal.SIGKILL, worker.tail()
    copying.finish(copying.running())
    assert_proven(copying)


def test_a_flow_whose_lanes_were_changed_is_proven_exact(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=6, lanes=1)
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        for lanes in (18, 2):
            copying.file.write(lanes=lanes)
            successor = copying.run()
            assert worker.wait_exit() == 5, worker.tail()
            successor.wait_event("committed")
            worker = successor
    copying.finish(worker)
    assert_proven(copying)


def test_what_is_in_flight_is_no_difference(make_copying: MakeCopying) -> None:
    copying = make_copying()
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        for _ in range(3):
            code, found, said = asked(copying, "reconcile", "--local")
            assert (code, found.get("verdict")) == (0, "agrees"), (found, said)
            code, found, said = asked(copying, "verify")
            assert (code, found.get("verdict")) == (0, "stands"), (found, said)
    copying.finish(worker)


def test_a_named_topic_that_is_gone_hides_no_other(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    two.assert_stops(two.running(10), 0)
    never = f"{two.name}.never"
    two.flow.file.write(topics=[two.first, two.second, never])
    clients.delete_topic(two.source, two.first)
    expected = {(two.first, 0, "source_topic_deleted"), (never, -1, "unknown_source_topic")}
    for command in (["reconcile", "--local"], ["verify"]):
        code, found, said = asked(two.flow, *command)
        assert (code, found.get("verdict")) == (4, "unproven"), (found, said)
        assert {(it["topic"], it["partition"], it["name"]) for it in found["not_compared"]} == expected
        (compared,) = found["partitions"]
        assert two.second in str(compared["source"]), compared
        code, found, said = asked(two.flow, *command, "--topics", two.second)
        assert (code, found["not_compared"]) == (0, []), said
        code, found, said = asked(two.flow, *command, "--topics", f"{two.first},{two.second}")
        assert (code, [it["topic"] for it in found["not_compared"]]) == (4, [two.first]), said
        code, _, said = asked(two.flow, *command, "--topics", never)
        assert (code, f"has no topic {never}" in said) == (2, True), said


def map_incidents(copying: Copying) -> list[str]:
    code, found, said = asked(copying, "incident", "list")
    assert code == (4 if found["incidents"] else 0), said
    return sorted(it["name"] for it in found["incidents"] if it["topic"] == offsets_topic(copying.name))


def test_a_map_that_is_lost_newer_or_unfit_is_refused_by_name(make_copying: MakeCopying) -> None:
    copying = make_copying()
    worker = copying.running()
    copying.load.mixed(200)
    copying.finish(worker)
    topic = offsets_topic(copying.name)
    assert map_incidents(copying) == []
    clients.put(clients.producer(copying.target), topic, b"\x02\x01")
    for command in (["reconcile", "--local"], ["verify"]):
        code, _, said = asked(copying, *command)
        assert (code, "newer_format" in said) == (4, True), said
    clients.recreate_topic(copying.target, topic, 1)
    for command in (["reconcile", "--local"], ["verify"]):
        code, _, said = asked(copying, *command)
        assert (code, "map_topic_unfit" in said) == (4, True), said
    assert map_incidents(copying) == ["map_lost", "map_topic_unfit"]
    clients.recreate_topic(copying.target, topic, MAP_PARTITIONS)
    assert map_incidents(copying) == ["map_lost"]
    code, found, said = asked(copying, "reconcile", "--local")
    assert (code, found["verdict"]) == (4, "unproven"), said
    reasons = [one["unproven_reasons"] for one in found["partitions"] if one["source_records"]]
    assert reasons
    assert all(list(one) == ["not covered by the offset map: it has nothing of this partition"] for one in reasons)
    assert sum(sum(one.values()) for one in reasons) == copying.load.committed
    code, found, said = asked(copying, "verify")
    assert (code, found["verdict"]) == (4, "unproven"), said
    clients.delete_topic(copying.target, topic)
    assert map_incidents(copying) == ["map_lost"]
    for command in (["reconcile", "--local"], ["verify"]):
        code, _, said = asked(copying, *command)
        assert (code, "map_lost" in said) == (4, True), said


def test_a_map_whose_beginning_was_deleted_covers_what_is_left(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    worker = copying.running()
    for _ in range(4):
        copying.load.mixed(100)
        worker.wait_event("committed", after=worker.mark())
    copying.finish(worker)
    topic = offsets_topic(copying.name)
    end = clients.stable_end(copying.target, topic)
    clients.delete_records(copying.target, topic, 0, end // 2)
    assert map_incidents(copying) == []
    code, found, said = asked(copying, "reconcile", "--local")
    assert (code, found["verdict"]) == (4, "unproven"), said
    totals = found["totals"]
    assert totals["same"] > 0
    assert totals["same"] + totals["unproven"] == copying.load.committed
    assert list(found["partitions"][0]["unproven_reasons"]) == ["not covered by the offset map: it begins later"]
    provable = found["partitions"][0]["provable"]
    assert provable["source_offset"] > 0
    assert 0 < provable["since_ms"] <= found["snapshot_ms"]
    code, found, said = asked(copying, "verify")
    assert (code, found["verdict"]) == (4, "unproven"), said
    assert found["partitions"][0]["foreign"] == 0
    clients.delete_records(copying.target, topic, 0, end)
    assert map_incidents(copying) == ["map_lost"]


def test_what_is_proven_is_signed_and_can_be_checked(make_copying: MakeCopying, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    made = Ed25519PrivateKey.generate()
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    copying = make_copying()
    with copying.writing():
        worker = copying.running()
        worker.wait_event("committed")
    copying.finish(worker)
    for words in (("reconcile", "--local"), ("verify",)):
        out = tmp_path / words[0]
        code, _, said = asked(copying, *words, "--sign", str(key))
        assert (code, "nothing to sign without --out" in said) == (2, True), said
        code, _, said = asked(copying, *words, "--out", str(out), "--sign", str(key))
        assert code == 0, said
        assert signing.check(out).wrong == ()
        report = next(path for path in out.iterdir() if path.name in ("report.json", "verify.json"))
        assert json.loads(report.read_text())["flow"] == copying.name
        report.write_text(report.read_text().replace('"same"', '"Same"').replace('"stands"', '"Stands"'))
        assert signing.check(out).wrong != ()
