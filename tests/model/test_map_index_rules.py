"""Each rule of the map's index is needed: with one left out, a history goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from replicator.offset_map import consolidate, prune
from replicator.offset_map.consolidate import IndexTransaction
from replicator.offset_map.delivered import SectionDelivery
from replicator.offset_map.directory import EntryChange, encode_changes
from replicator.offset_map.page import MapPage
from replicator.offset_map.pending_blocks import PendingBlocks, ReadyBlocks
from replicator.offset_map.section import MapSection
from tests.model import map_index
from tests.model.map_index import Process
from tests.model.test_map_index import check_all, small

__all__ = ["small"]
SEEDS = 120
Patch = Callable[[pytest.MonkeyPatch], None]


def deleted_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    commit = IndexTransaction.root

    def root(transaction: IndexTransaction, written: Any, now_ms: int) -> bytes:
        found = commit(transaction, written, now_ms)
        load: Any = transaction._load
        process: Process = load.__self__
        process.delete(process.logs.raw, dict(enumerate(transaction._state.root.covered)))
        return found

    patch.setattr(IndexTransaction, "root", root)


def a_zombie_deletes_what_it_has_not_committed(patch: pytest.MonkeyPatch) -> None:
    commit = Process.commit

    def patched(process: Process) -> None:
        if process.epoch == process.logs.epoch:
            commit(process)

    patch.setattr(Process, "commit", patched)
    write = Process.write

    def unfenced(process: Process, values: Any) -> list[int]:
        return (
            write(process, values) if process.epoch == process.logs.epoch else [10**9 + n for n, _ in enumerate(values)]
        )

    patch.setattr(Process, "write", unfenced)


def a_record_of_changes_is_lost(patch: pytest.MonkeyPatch) -> None:
    encode = encode_changes

    def patched(changes: Iterable[EntryChange], *, voids: bool = False) -> list[bytes]:
        listed = list(changes)
        return encode(listed if voids else listed[:-1], voids=voids)

    patch.setattr(consolidate, "encode_changes", patched)


def a_page_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IndexTransaction, "_page", lambda transaction, key, ref: MapPage(*key))


def pruned_ranges_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    joined = prune._without_runs

    def patched(section: MapSection) -> MapSection:
        found = joined(section)
        if found.pruned is None:
            return found
        return replace(found, pruned=found.pruned._replace(ranges=()))

    patch.setattr(prune, "_without_runs", patched)


def boundaries_of_digests_are_lost(patch: pytest.MonkeyPatch) -> None:
    """A page that follows another one is put behind it, and its digests are taken for those of other sections."""

    def join(page: MapPage, other: MapPage) -> None:
        page.sections += other.sections
        page.digests = [*page.digests[:-1], *other.digests] if page.digests else list(other.digests)

    patch.setattr(MapPage, "join", join)


def generations_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A block of the next generation goes into the index before all of the earlier ones were read."""
    take = PendingBlocks.take

    def patched(pending: PendingBlocks) -> ReadyBlocks:
        pending._barrier = pending._highest, [0] * len(pending.read_to)
        return take(pending)

    patch.setattr(PendingBlocks, "take", patched)


def the_index_is_not_read_after_the_fence(patch: pytest.MonkeyPatch) -> None:
    read = Process.read_index
    patch.setattr(Process, "read_index", lambda process: read(process) if process.logs.epoch == 1 else None)


def a_reader_does_not_read_the_index_again(patch: pytest.MonkeyPatch) -> None:
    """Blocks that are gone are passed over."""
    patch.setattr(map_index, "is_gone", lambda log, at: False)


def what_was_given_is_given_again(patch: pytest.MonkeyPatch) -> None:
    from_index = SectionDelivery.from_index

    def patched(delivery: SectionDelivery, key: Any, entry: Any, load: Any) -> None:
        delivery._given[key] = 0
        from_index(delivery, key, entry, load)

    patch.setattr(SectionDelivery, "from_index", patched)


def room_is_made_before_pages_are_written_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IndexTransaction, "_rewrite", lambda transaction, number, below: False)


RULES: Sequence[tuple[Patch, str, bool]] = (
    (deleted_before_the_commit, "plain", False),
    (a_zombie_deletes_what_it_has_not_committed, "plain", False),
    (a_record_of_changes_is_lost, "plain", False),
    (a_page_is_lost, "plain", False),
    (pruned_ranges_are_forgotten, "target retention", True),
    (boundaries_of_digests_are_lost, "plain", False),
    (generations_do_not_wait, "generations", False),
    (the_index_is_not_read_after_the_fence, "plain", False),
    (what_was_given_is_given_again, "plain", False),
    (a_reader_does_not_read_the_index_again, "plain", False),
    (room_is_made_before_pages_are_written_again, "all", False),
)


@pytest.mark.tier("full")
@pytest.mark.parametrize(("left_out", "name", "prunes"), RULES, ids=lambda value: getattr(value, "__name__", None))
def test_each_rule_of_the_index_is_needed(
    left_out: Patch, name: str, prunes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011 - a mutation may fail in any way, but must
        check_all(name, SEEDS, prunes=prunes)
