"""Finds the source partition whose next batch is larger than the source reader takes. Used by `source`.

librdkafka (2.16) drops a response above `receive.message.max.bytes` with its connection, tells no partition, and asks
for the same again, for ever. A broker sends the first batch of a fetch whole, whatever the fetch's limits are: so each
partition is asked for one batch by another consumer, from the offset that is read next.

Invariants
- An error of that consumer names no partition, and comes late where the source is far away: it is believed only of a
  consumer that has asked for no other partition.
- A partition that has not answered is not cleared: it is asked again, with more time each time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from replicator.config import Flow
from replicator.kafka import failures, metadata, properties
from replicator.model.errors import Incident
from replicator.model.partition import Partition

ROUND_S_MAX = 1.0  # of one round, which holds up the lane
LOOK_S = 0.05  # of a round that only goes on waiting for an answer
POLL_S = 0.02
ANSWER_S = 0.5  # of one partition when it is asked first


def is_oversized(error: KafkaError) -> bool:
    """Tell whether an error of a client as a whole says that a response was too large. CRC errors have the same
    code."""
    return error.code() == KafkaError._BAD_MSG and "Invalid response size" in error.str()


class _Probe:
    """One consumer that is assigned to one partition after the other."""

    def __init__(self, props: properties.Properties, cluster: str, topics: Collection[str]) -> None:
        """`topics`: those of all partitions that may be asked for."""
        self._hit = False
        self.at: Partition | None = None  # asked for, and not answered yet
        self.offset, self.asked_s = -1, 0.0
        self.alone = True  # the consumer has asked for no other partition
        self._used = False
        with failures.making(cluster):
            self._consumer = Consumer({**props, "error_cb": self._error, **properties.SILENT})
        metadata.learn(self._consumer, topics)

    def _error(self, error: KafkaError) -> None:
        self._hit = self._hit or is_oversized(error)

    def ask(self, at: Partition, offset: int) -> None:
        """Ask for one batch of `at`."""
        self.alone, self._used = not self._used, True
        self.at, self.offset, self.asked_s = at, offset, time.monotonic()
        self._consumer.assign([TopicPartition(at.topic, at.partition, offset)])

    def answer(self, until_s: float) -> bool | None:
        """Wait for the answer: whether a response was too large; None if there is no answer until `until_s`."""
        while True:
            message = self._consumer.poll(max(0.0, min(POLL_S, until_s - time.monotonic())))
            read = message is not None and message.topic() is not None  # a record, an end or an error of its own
            if read or self._hit:
                self.at = None
                return not read
            if time.monotonic() >= until_s:
                return None

    def close(self) -> None:
        """Let go of the consumer, and of all answers that are still on their way to it."""
        self._consumer.close()


class OversizedSearch:
    """The search in one assignment of the source reader: begun when a response was too large, in bounded rounds."""

    def __init__(self, flow: Flow, record_bytes_max: int) -> None:
        """`record_bytes_max`: the largest record or batch that the target takes."""
        self._flow, self._record_bytes_max = flow, record_bytes_max
        self._patience_s_max = max(ANSWER_S, flow.limits.request_timeout_ms / 1000)
        self._wanted = False
        self._text = ""
        self._probe: _Probe | None = None
        self._told_again = False  # since the last round, so that one that was cleared may be the one by now
        self._told = False  # since all were given as much time as there is
        self._cleared: dict[Partition, int] = {}  # of this search, with the offsets that they were asked for
        self._moved: set[Partition] = set()  # of those that were cleared: asked in turn with the others
        self._moved_last = False  # one of these was asked last
        self._suspect: Partition | None = None  # to be asked alone: an error came that may be of another one
        self._unanswered: set[Partition] = set()  # of those that were given `_patience_s`
        self._patience_s = ANSWER_S

    def begin(self, text: str) -> None:
        """Note that the source reader was sent a response that it does not take; `text` is the client's."""
        self._told_again = self._wanted
        self._wanted, self._told, self._text = True, True, text

    def forget(self) -> None:
        """Forget the search, for another assignment or the end: what is wrong with it will be told again."""
        self._wanted, self._told_again, self._patience_s = False, False, ANSWER_S
        self._cleared.clear()
        self._moved.clear()
        self._suspect = None
        self._unanswered.clear()
        self._let_go()

    @property
    def wanted(self) -> bool:
        """Whether there is something to look for."""
        return self._wanted

    def round(self, candidates: Iterable[Partition], positions: Mapping[Partition, int]) -> dict[Partition, Incident]:
        """Ask `candidates` in their order until one is found or the time is over; `record_too_large` where it is.

        The next round goes on with the partition that hasn't answered yet, and asks others after it. A partition with
        earlier records still in the source reader's queue can't be found yet: when librdkafka tells the same again, a
        second later at most, those that have moved are asked in turn with the others. When all were asked without
        result the search ends.
        """
        deadline_s = time.monotonic() + ROUND_S_MAX
        self._ask_moved(positions)
        left = [at for at in candidates if at not in self._cleared]
        if self._still_asked(left, positions):
            deadline_s = time.monotonic() + LOOK_S
        while (at := self._next(left)) is not None:
            probe = self._asking(at, left, positions)
            answer = probe.answer(min(deadline_s, probe.asked_s + self._patience_s))
            if answer is None:
                if time.monotonic() >= probe.asked_s + self._patience_s:
                    self._unanswered.add(at)
                    self._let_go()
                return {}
            if answer and probe.alone:
                self.forget()
                return {at: self._incident(at, positions[at])}
            if answer:  # of this partition, or late of another one: the next round asks it alone
                self._suspect = at
                self._let_go()
                return {}
            self._clear(at, probe.offset)
            left.remove(at)
            if left and time.monotonic() >= deadline_s:
                return {}
        self.forget()
        return {}

    def _still_asked(self, left: list[Partition], positions: Mapping[Partition, int]) -> bool:
        """Tell whether an answer is still waited for: not where the partition was read on meanwhile, which is taken
        off `left`."""
        probe = self._probe
        if probe is None or probe.at is None:
            return False
        if probe.at in left and positions[probe.at] == probe.offset:
            return True
        if probe.at in left:
            self._clear(probe.at, probe.offset)
            left.remove(probe.at)
        self._let_go()
        return False

    def _clear(self, at: Partition, offset: int) -> None:
        self._cleared[at] = offset
        self._moved.discard(at)
        if self._suspect == at:
            self._suspect = None

    def _ask_moved(self, positions: Mapping[Partition, int]) -> None:
        """Ask those again that were cleared at another offset, if the same was told again since."""
        if self._told_again:
            self._told_again = False
            moved = {at for at, offset in self._cleared.items() if positions.get(at, offset) != offset}
            self._moved |= moved
            for at in moved:
                del self._cleared[at]

    def _next(self, left: list[Partition]) -> Partition | None:
        """Say which partition is asked now: the one under way, else the first that wasn't given this much time yet."""
        if self._probe is not None and self._probe.at is not None:
            return self._probe.at
        others = [at for at in left if at not in self._moved] or left  # those that move may never come to an end
        more = self._patience_s < self._patience_s_max or (self._moved and self._told)
        if others and more and self._unanswered.issuperset(others):
            self._told = False
            self._patience_s = min(2 * self._patience_s, self._patience_s_max)
            self._unanswered.clear()
        waiting = [at for at in left if at not in self._unanswered]
        if self._suspect in waiting:
            return self._suspect
        # The others must come to an end however many move meanwhile.
        return min(waiting, key=lambda at: (at in self._moved) is self._moved_last, default=None)

    def _asking(self, at: Partition, left: list[Partition], positions: Mapping[Partition, int]) -> _Probe:
        if self._probe is None:
            props = properties.probing_consumer(self._flow, self._record_bytes_max, len(positions))
            self._probe = _Probe(props, self._flow.source.name, {one.topic for one in left})
        if self._probe.at is None:
            self._moved_last = at in self._moved
            self._probe.ask(at, positions[at])
        return self._probe

    def _let_go(self) -> None:
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def _incident(self, at: Partition, offset: int) -> Incident:
        limit = properties.fetch_bytes_max(self._flow, self._record_bytes_max)
        return Incident(
            "record_too_large",
            f"the next batch from this offset on is larger than the {limit} bytes that are read at once "
            f"(limits.record_bytes_max, or the target's max.message.bytes): {self._text}",
            topic=at.topic,
            partition=at.partition,
            offset=offset,
        )
