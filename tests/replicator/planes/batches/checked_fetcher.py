"""The fetcher, which sees at each question that what it keeps is what it would find out anew."""

from __future__ import annotations

from replicator.model.fetches import FetchFrom
from replicator.planes.batches.asked_broker import NumberedFetch
from replicator.planes.batches.fetcher import BatchFetcher
from replicator.planes.batches.part_read import ReadState
from replicator.planes.batches.reading_summary import ReadingSummary, summed_up


class CheckedFetcher(BatchFetcher):
    """For all tests of schedules: none of their events may leave it with what was true before."""

    def _summed_up(self, now_s: float) -> ReadingSummary:
        kept, anew = super()._summed_up(now_s), summed_up(self._parts.values(), now_s)
        assert kept[:4] == anew[:4], f"kept {kept}, but it is {anew}"
        return kept

    def next_fetch(self, broker: int, now_s: float) -> NumberedFetch | None:
        """Make the next request, and see that all partitions are asked for from where they stand."""
        asked = super().next_fetch(broker, now_s)
        if asked is None or not asked.patient:
            return asked
        flight, size = self._brokers[broker].flight, self._settings.part_bytes_max
        assert flight is not None
        due = [
            read
            for read in self._parts.values()
            if read.state is ReadState.READ and read.not_before_s <= now_s and read.source(now_s) == broker
        ]
        anew = {
            (self._ids[read.at.topic], read.at.partition): FetchFrom(read.offset, read.leader_epoch, size)
            for read in due
        }
        assert list(flight.asked.items()) == list(anew.items())
        assert [flight.parts[key] for key in anew] == due
        return asked
