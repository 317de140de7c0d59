"""What must be true after a failover, by what stands in both clusters' logs and what producers and consumers know of
themselves; of the verdict only when it says that the source was looked at last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from integration_tests.harness.failover_run import FailoverRun
from integration_tests.harness.group_reading import left
from integration_tests.harness.source_writers import Logs, Written, matched, read_all
from replicator.model.partition import Partition

LOOKED_MS_MAX = 5_000
"""How old the last look is at most where nothing has befallen the flow."""

ROUND_S_MAX = 5.0
"""How long the last round of group sync has ended by then at most."""


class FailoverTruth:
    """Of one failover. Made once the source is back, and nobody writes any more."""

    def __init__(self, run: FailoverRun) -> None:
        self.run, self.positions = run, run.positions()
        self.logs: Logs = read_all(run.copying.source, run.places)
        self._copies: Logs = {}
        run.writers.find(self.logs)

    def check(self) -> None:
        """All of it."""
        self._nothing_was_copied()
        self._verdict_is_true()
        self._group_was_never_too_far()
        self._group_goes_on()
        self._torn_are_named()
        self.run.tell("all is checked")

    def all_is_copied(self) -> None:
        """After it was undone."""
        logs = read_all(self.run.copying.source, self.run.places)
        self._are_copies(logs, {at: records[-1].offset + 1 for at, records in logs.items()})

    def _nothing_was_copied(self) -> None:
        """Since the verdict."""
        assert self.run.target_ends() == self.run.ends, "copied after the failover"
        self._are_copies(self.logs, self.positions)

    def _are_copies(self, logs: Logs, positions: Mapping[Partition, int]) -> None:
        """The target has what stands at the source below the positions, and nothing else."""
        self._copies = read_all(self.run.copying.target, self.run.copies.values())
        for at, copy in self.run.copies.items():
            here = [(it.key, it.value) for it in logs[at] if it.offset < positions[at]]
            assert [(it.key, it.value) for it in self._copies[copy]] == here, f"the copy of {at}"

    def _group_was_never_too_far(self) -> None:
        """Wherever it was moved, that was not behind a record that it had not consumed by then: copies are in order."""
        for at, copy in self.run.copies.items():
            for seen_s, offset in self.run.watch.moved(copy):
                behind = sum(it.offset < offset for it in self._copies[copy])
                consumed = self.run.group.perhaps_by(seen_s).get(at, 0)
                last = self.logs[at][behind - 1].offset if behind else -1
                assert last < consumed, f"{at}: moved to {offset}, behind {last}, when {consumed} was committed"

    def _verdict_is_true(self) -> None:
        verdict, run = self.run.verdict, self.run
        rows = {Partition(row["source_topic"], row["partition"]): row for row in verdict["partitions"]}
        assert {at: row["position"] or 0 for at, row in rows.items()} == self.positions
        for at, row in rows.items():
            assert 0 <= row["source_end_seen"] <= self.logs[at][-1].offset + 1, (at, row)
            assert row["not_copied_at_least"] == max(0, row["source_end_seen"] - (row["position"] or 0))
        (group,) = [row for row in verdict["groups"] if row["group"] == run.name]
        assert (group["partitions_of_others"], group["has_members"]) == (0, False), group
        assert group["partitions_synced"] == len(run.places), group
        assert (run.code == 0) == verdict["complete"]

    def _group_goes_on(self) -> None:
        """None of what is copied and was not consumed at the source is skipped; what was synced isn't read again."""
        run = self.run
        began_s, round_s = run.watch.last_rounds_s()
        synced, copied = run.group.committed_by(began_s), run.watch.positions_at(began_s)
        consumed = run.group.perhaps_by(run.frozen_s)
        at_target = run.group_offsets()
        again = since = 0
        for topic, count in zip((run.flow.first, run.flow.second), run.plan.partitions, strict=True):
            read = left(run.copying.target, run.name, run.flow.copy_of(topic), count)
            assert read is not None, f"{run.name} has no offset in {topic}"
            for at in (it for it in run.places if it.topic == topic):
                keys = {it.offset: it.key for it in self.logs[at] if it.offset < self.positions[at]}
                behind = min(synced.get(at, 0), copied.get(run.copies[at], 0))
                told = f"{at}: at {at_target[at]} there, {consumed.get(at, 0)} consumed, {behind} synced for certain"
                lost = [offset for offset, key in keys.items() if offset >= consumed.get(at, 0) and key not in read]
                twice = [offset for offset, key in keys.items() if offset < behind and key in read]
                assert not lost, f"skipped {lost[:9]}, {told}"
                assert not twice, f"read again {twice[:9]}, {told}"
                again += sum(offset < consumed.get(at, 0) and key in read for offset, key in keys.items())
                since += sum(behind <= offset < consumed.get(at, 0) for offset in keys)
        if not run.plan.faults:
            assert round_s >= run.asked_ms / 1000 - ROUND_S_MAX, "groups aren't synced any more"
        print(f"{run.group.consumed} consumed, {again} read again, {since} since the last sync")

    def _torn_are_named(self) -> None:
        verdict, writers = self.run.verdict, self.run.writers.all
        named = {matched(row, writers).number: row for row in verdict["transactions"]}
        assert len(named) == len(verdict["transactions"])
        certain = {number for number, row in named.items() if row["half_copied"]}
        truth = {it.number for it in writers if it.torn(self.positions)}
        (seen,) = verdict["transactions_seen"]
        must = {number for number in truth if self._was_seen(writers[number], seen)}
        print(f"{len(writers)} transactions, {len(truth)} half copied, {len(must)} of them ended before the last look; "
              f"named {len(certain)}, unclear {len(named) - len(certain)}")  # fmt: skip
        assert must <= named.keys(), [writers[number] for number in must - named.keys()]
        assert certain <= truth, [writers[number] for number in certain - truth]
        for number, row in named.items():
            self._row_is_true(writers[number], row)
        assert seen["since_ms"] <= self.run.began_ms, "looks have begun anew"
        if not self.run.plan.faults:
            assert seen["looked_ms"] >= self.run.asked_ms - LOOKED_MS_MAX, seen

    @staticmethod
    def _was_seen(it: Written, seen: Mapping[str, Any]) -> bool:
        """Whether it ended after looks had begun, and before the last one."""
        return seen["since_ms"] < it.deciding_ms and bool(it.committed) and it.ended_ms < seen["looked_ms"]

    def _row_is_true(self, it: Written, row: Mapping[str, Any]) -> None:
        for part in row["partitions"]:
            at = Partition(part["source_topic"], part["partition"])
            position, offsets = self.positions[at], it.at.get(at, [])
            assert (part["position"] or 0) == position, (it, part)
            first, end = part["first_offset_at_least"] or 0, part["end_offset_at_most"] or 2**62
            assert all(first <= offset < end for offset in offsets), (it, part)
            assert part["copied"] is None or all((offset < position) == part["copied"] for offset in offsets), (
                it,
                part,
            )
