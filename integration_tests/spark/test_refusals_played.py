"""Kinds of incident that stop no flow but a reconciliation on Spark, or lead to one: provoked, and then what
docs/operate/incidents.md says is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.commands import reconcile_map_repair
from integration_tests.harness import clients
from integration_tests.harness.advised import advised
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.load import fill
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.two_topics import TwoTopics
from integration_tests.spark.conftest import Command, Plant
from integration_tests.spark.planted import EPOCH_MS, Planted, mixed, produce
from integration_tests.spark.seeded_logs import CLEANABLE, set_compacted
from integration_tests.spark.test_compaction import keyed, later
from integration_tests.test_incidents_played import asked, without_its_end
from replicator.model.incident_kinds import advice_for
from replicator.proof.pair_comparison import LEFT_MAX
from replicator.spark.reconcile.missing import SPANS_MAX

pytestmark = [pytest.mark.tier("long"), pytest.mark.timeout(900)]

NANOSECONDS = EPOCH_MS * 1_000_000
"""What a producer writes that counts nanoseconds."""
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
KEPT = 10
TAKEN, LEFT = 100, 250
"""Records of one key: the first is an older one, the other is its last."""


def report(said: str) -> dict[str, Any]:
    """The JSON among what a command has said."""
    found: dict[str, Any] = json.loads(said[said.index("{\n") : said.rindex("}") + 1])
    return found


def test_a_time_that_spark_can_not_read_leaves_the_records_before_it_to_be_compared(
    plant: Plant, command: Command
) -> None:
    """timestamp_out_of_range: --to, a time before them."""
    records = mixed(200)
    far = [*records[:150], records[150]._replace(timestamp_ms=NANOSECONDS), *records[151:]]
    both = [far, records]
    planted = plant(both, both, source_configs=ANY_TIME, target_configs=ANY_TIME)
    code, said = command(planted, "--json")
    found = report(said)
    assert code == 4, said
    assert [(it["name"], it["partition"]) for it in found["not_compared"]] == [("timestamp_out_of_range", 0)], said
    assert [row["verdicts"] for row in found["partitions"]] == [{"same": 200}]
    code, said = command(planted, "--json", "--to", "2024-06-01T00:00:00Z")
    found = report(said)
    assert (code, found["not_compared"]) == (0, []), said
    assert [row["verdicts"] for row in found["partitions"]] == [{"same": 150}, {"same": 200}]


def test_what_a_cleaner_takes_at_the_source_between_comparison_and_repair_is_named_and_the_rest_is_copied(
    plant: Plant, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """repair_record_gone: reconcile again, with a repair, and the flow goes on."""
    records = keyed(300)
    copies = [record for number, record in enumerate(records) if number not in (TAKEN, LEFT)]
    planted = plant([records], [copies], source_configs=CLEANABLE)
    planted.commit([300], [298])
    repaired = reconcile_map_repair.run_repair

    def cleaned_first(*arguments: Any, **options: Any) -> Any:
        produce(planted.source, planted.topic, [later(records, b"late")])
        set_compacted(planted.source, planted.topic)
        wait_until(lambda: TAKEN not in there(planted), "the cleaner is through", lambda: str(there(planted)))
        return repaired(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(reconcile_map_repair, "run_repair", cleaned_first)
        code, said = command(planted, "--repair", "apply")
    assert (code, f"source offsets {TAKEN} to {TAKEN}" in said) == (4, True), said
    assert advice_for("repair_record_gone", flow=planted.file.flow) in said
    assert clients.stable_end(planted.target, planted.copy) == len(copies), "nothing was copied"

    words = advised(said[said.index("repair_record_gone") :], "reconcile --repair apply")
    code, said = command(planted, *words[1:], "--json")
    found = report(said)
    assert code == 1, said
    assert [row["copied"] for row in found["repair"]["partitions"]] == [1], said
    assert clients.read(planted.target, planted.copy)[-1].value() == records[LEFT].value
    worker = Replicator(planted.file)
    try:
        clients.wait_value(planted.target, planted.copy, 0, b"late")
        assert worker.stop() == 0, worker.tail()
    finally:
        worker.close()
    assert not worker.seen("incident")


def there(planted: Planted) -> set[int | None]:
    """Offsets of the records that the source has."""
    return {record.offset() for record in clients.read(planted.source, planted.topic)}


def test_more_ranges_than_one_repair_takes_are_copied_by_another_flow(
    source: BrokerHandle, target: BrokerHandle, plant: Plant, command: Command, tmp_path: Path
) -> None:
    """repair_too_large: the topic is copied by another flow under another name."""
    records = mixed(2 * SPANS_MAX + 4)
    planted = plant([records], [records[1::2]])
    code, said = command(planted, "--repair", "apply")
    assert (code, "repair_too_large" in said) == (4, True), said
    assert clients.stable_end(planted.target, planted.copy) == len(records) // 2, "nothing was copied"
    other = Copying(source, target, tmp_path, topics=[planted.topic], rename="{topic}.anew")
    try:
        worker = other.running()

        def position() -> int:
            return clients.committed(planted.target, other.group, f"{planted.topic}.anew", 0).offset

        wait_until(lambda: position() == len(records), "the topic is copied anew", worker.tail)
        assert worker.stop() == 0, worker.tail()
        code, found, said = asked(other, "reconcile", "--local")
        assert (code, found["totals"]["same"]) == (0, len(records)), said
    finally:
        other.close()


def test_more_differences_than_one_process_takes_are_compared_by_spark(
    source: BrokerHandle, target: BrokerHandle, command: Command, tmp_path: Path
) -> None:
    """too_many_differences: reconcile without --local."""
    copying = Copying(source, target, tmp_path, partitions=1)
    try:
        two = TwoTopics(copying)
        worker = two.running(KEPT)
        behind_marker = clients.stable_end(two.target, two.copy_of(two.first))
        fill(two.source, two.first, [LEFT_MAX + 1], lambda _, number: (b"key", b"%d" % number))
        end = KEPT + LEFT_MAX + 1
        two.wait_position(two.first, end)
        two.assert_stops(worker, 0)
        without_its_end(two, target, behind_marker)
        code, found, said = asked(two.flow, "reconcile", "--local")
        assert (code, [(it["name"], it["topic"]) for it in found["not_compared"]]) == (
            4,
            [("too_many_differences", two.first)],
        ), said
        code, said = command(copying, "--json")
        (differing,) = [row for row in report(said)["partitions"] if not row["agrees"]]
        assert (code, differing["source"]["topic"]) == (1, two.first), said
        assert differing["verdicts"] == {"same": KEPT, "missing": end - KEPT}, said
    finally:
        copying.close()
