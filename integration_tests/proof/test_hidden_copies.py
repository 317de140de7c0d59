"""A log has lost a transaction's marker, so that records of one partition stay hidden: that is said of this one, and
all others are proven all the same."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, lose_end
from integration_tests.proof.test_beside_a_flow import asked

DIFFERS, UNPROVEN, RECORDS = 1, 4, 20


@pytest.mark.tier("long", kafka="long")
def test_copies_behind_a_lost_marker_are_named_and_no_other_partition_waits(
    make_copying: MakeCopying, target: BrokerHandle
) -> None:
    copying = make_copying()
    worker = copying.running()
    values = [b"%d" % number for number in range(RECORDS)]
    for number in range(copying.partitions):
        clients.put(clients.producer(copying.source), copying.topic, *values, partition=number)
    for number in range(copying.partitions):
        clients.wait_value(copying.target, copying.copy, number, values[-1])
    assert worker.stop() == 0, worker.tail()
    sound = dict.fromkeys(range(1, copying.partitions), RECORDS)
    marker = clients.stable_end(copying.target, copying.copy) - 1
    lose_end(target, copying.copy, marker)
    assert clients.stable_end(copying.target, copying.copy) < marker
    for command in (["reconcile", "--local"], ["verify"], ["verify", "--without-source"]):
        code, found, said = asked(copying, *command)
        assert (code, found.get("verdict")) == (UNPROVEN, "unproven"), (command, found, said)
        named = [(it["name"], it["topic"], it["partition"]) for it in found["not_compared"]]
        assert named == [("target_transaction_open", copying.topic, 0)]
        assert "is stable up to" in found["not_compared"][0]["detail"]
        figure = "target_records" if command[0] == "reconcile" else "standing"
        assert {it["source"]["partition"]: it[figure] for it in found["partitions"]} == sound
    code, found, _ = asked(copying, "reconcile", "--local", "--repair", "apply", "--take-over")
    assert (code, found["repair"]["partitions"]) == (UNPROVEN, []), "nothing is copied there"


@pytest.mark.tier("long", kafka="long")
def test_a_marker_lost_at_the_source_keeps_no_other_partition_from_being_compared(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    copying = make_copying(partitions=2)
    worker = copying.running()
    writer = clients.transactional(copying.source, f"{copying.name}.writer")
    writer.begin_transaction()
    for number in range(2):
        clients.put(writer, copying.topic, *[b"%d" % value for value in range(RECORDS)], partition=number)
    writer.commit_transaction(clients.TIMEOUT_S)
    for number in range(2):
        clients.wait_value(copying.target, copying.copy, number, b"%d" % (RECORDS - 1))
    assert worker.stop() == 0, worker.tail()
    lose_end(source, copying.topic, RECORDS)
    assert clients.stable_end(copying.source, copying.topic) == 0
    code, found, said = asked(copying, "reconcile", "--local")
    assert (code, found.get("verdict")) == (DIFFERS, "differs"), said
    hidden, sound = found["partitions"]
    assert (sound["verdict"], sound["verdicts"]) == ("agrees", {"same": RECORDS})
    assert (hidden["source_records"], hidden["target_records"]) == (0, RECORDS)
    assert any("an open transaction hides what follows" in note for note in hidden["notes"]), hidden["notes"]
