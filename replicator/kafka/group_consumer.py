"""The consumer by which a worker is a member of its flow's group of workers. One thread owns it, and never blocks.

Nothing is consumed: the lanes topic is empty, and its partitions are assigned paused. librdkafka sends heartbeats by
itself, so nothing that a lane does can end the membership. Commands go to the thread by a queue, events come back
by `tell`, in the order in which they happened.

Proofs are asynchronous commits. A commit that waits for its answer may wait as long as a coordinator is away (it stood
for 70 s), and one from another thread while this one polls hung: so here is the only thread, and a deadline of its own.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from replicator.config import Flow
from replicator.kafka import failures, properties
from replicator.kafka.group_events import (
    GroupEnded,
    GroupEvent,
    GroupTrouble,
    LanesAssigned,
    LanesRevoked,
    LanesTopicUnfit,
    MemberIdChanged,
    MembershipLost,
    ProofAnswered,
)
from replicator.model import names
from replicator.model.errors import ConfigError, ReplicatorError, Unreachable
from replicator.workers.proofs import ProofAnswer

PROOF_S_MAX = 5.0
POLL_S, POLL_WAITING_S = 0.05, 0.005
"""How soon a command is seen; how soon the answer to a proof is."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A proof that is under way."""

    member: str
    in_assignment: bool
    deadline_s: float


class GroupConsumer:
    """A worker's membership in the group of one flow's workers. Its methods are for any thread, and return at once."""

    def __init__(self, flow: Flow, lanes: int, client_id: str, tell: Callable[[GroupEvent], None]) -> None:
        """Connect to nothing yet, see `subscribe`.

        Args:
            lanes: of the open generation: the partitions that the lanes topic should have.
            client_id: see `workers.early.WorkerClientId`.
            tell: gets each event, in the thread that owns the consumer; it must not block.
        """
        self._cluster, self._lanes, self._tell = flow.target.name, lanes, tell
        self._topic, self._group = names.lanes_topic(flow.name, lanes), names.workers_group(flow.name)
        self._settings = properties.group_member(flow, client_id)
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._held: frozenset[int] = frozenset()
        self._asked: dict[tuple[int, int], _Asked] = {}
        self._subscribed = self._closing = False
        self._member = ""
        self._told: set[str] = set()  # causes of trouble since it last went well
        self._thread = threading.Thread(target=self._run, name=f"{flow.name}-group", daemon=True)
        self._thread.start()

    def subscribe(self) -> None:
        """Begin to be a member, with KIP-429's incremental rebalances: a lane that stays is never taken away."""
        self._commands.put(self._subscribe)

    def unsubscribe(self) -> None:
        """Leave the group. What it gives back by that is not told: the caller knows."""
        self._commands.put(self._unsubscribe)

    def prove(self, lane: int, number: int, metadata: str) -> None:
        """Begin a proof. `ProofAnswered` comes within `PROOF_S_MAX`, once. `number`: positive, each given once."""
        self._commands.put(partial(self._prove, lane, number, metadata))

    def holds(self, lane: int) -> bool:
        """Tell whether a lane is in the assignment: no from the beginning of the callback on that takes it away, before
        the coordinator can give it to another worker."""
        return lane in self._held

    def close(self, timeout_s: float) -> bool:
        """Leave, and end the thread. Return whether it has ended within `timeout_s`; else it does so later, or with the
        process."""
        self._commands.put(self._close)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            callbacks = {"on_commit": self._committed, "error_cb": self._trouble}
            with failures.making(self._cluster):
                consumer = self._consumer = Consumer({**self._settings, **callbacks})
            try:
                while not self._closing:
                    self._serve()
            finally:
                self._unsubscribed()
                consumer.close()
        except BaseException as error:  # noqa: BLE001 - told to whoever owns this
            self._tell(GroupEnded(error))
        else:
            self._tell(GroupEnded(None))

    def _serve(self) -> None:
        while not self._commands.empty():
            self._commands.get_nowait()()
        message = self._consumer.poll(POLL_WAITING_S if self._asked else POLL_S)
        if message is not None and (error := message.error()) is not None:
            self._trouble(error)
        self._look_at_member()
        now_s = time.monotonic()
        for (lane, number), asked in list(self._asked.items()):
            if asked.deadline_s <= now_s:
                self._answer(lane, number, "REQUEST_TIMED_OUT")

    def _subscribe(self) -> None:
        self._subscribed = True
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _unsubscribe(self) -> None:
        self._unsubscribed()
        self._consumer.unsubscribe()

    def _unsubscribed(self) -> None:
        self._subscribed, self._held = False, frozenset()

    def _close(self) -> None:
        self._closing = True

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        new = [TopicPartition(each.topic, each.partition, OFFSET_END) for each in partitions]
        consumer.incremental_assign(new)
        if new:
            consumer.pause(new)
        if not self._subscribed:
            return
        given = frozenset(each.partition for each in partitions)
        unfit = frozenset(number for number in given if number >= self._lanes)
        self._held |= given - unfit
        self._look_at_member()
        self._told.clear()
        if unfit:
            self._tell(LanesTopicUnfit(unfit))
        self._tell(LanesAssigned(self._held))

    def _revoked(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        gone = frozenset(each.partition for each in partitions) & self._held
        self._held -= gone
        if self._subscribed and gone:
            self._tell(LanesRevoked(gone))

    def _lost(self, _: Consumer, __: Sequence[TopicPartition]) -> None:
        self._held = frozenset()
        if self._subscribed:
            self._tell(MembershipLost())

    def _look_at_member(self) -> None:
        member = self._consumer.memberid() or ""
        if self._member not in ("", member):
            self._tell(MemberIdChanged())
        self._member = member

    def _prove(self, lane: int, number: int, metadata: str) -> None:
        self._look_at_member()
        asked = _Asked(self._member, lane in self._held, time.monotonic() + PROOF_S_MAX)
        self._asked[lane, number] = asked
        if not asked.member or not asked.in_assignment:
            self._answer(lane, number, "")  # which proves nothing, as it is
            return
        try:
            # The topic is empty and never read, so the offset is free to carry the proof's number to its answer.
            offset = TopicPartition(self._topic, lane, number, metadata)
            self._consumer.commit(offsets=[offset], asynchronous=True)
        except KafkaException as error:
            self._answer(lane, number, failures.kafka_error(error).name())

    def _committed(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            own = each.error or error
            if own is None:
                self._told.clear()
            self._answer(each.partition, each.offset, own.name() if own is not None else "")

    def _answer(self, lane: int, number: int, error: str) -> None:
        asked = self._asked.pop((lane, number), None)
        if asked is None:
            return  # too late: it was answered by its deadline
        self._look_at_member()
        answer = ProofAnswer(
            lane=lane,
            number=number,
            error=error,
            member_before=asked.member,
            member_after=self._member,
            in_assignment=asked.in_assignment and lane in self._held,
        )
        self._tell(ProofAnswered(answer))

    def _trouble(self, error: KafkaError) -> None:
        doing, right = f"be a member of group {self._group!r}", f"Read on group {self._group!r} and on its topic"
        classified: ReplicatorError = failures.classify(error, self._cluster, doing, right)
        if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            session_ms = self._settings["session.timeout.ms"]
            classified = ConfigError(
                f"cluster {self._cluster!r} refuses limits.session_timeout_ms, {session_ms}: it is below its "
                "group.min.session.timeout.ms, or above its group.max.session.timeout.ms"
            )
        cause = "away" if isinstance(classified, Unreachable) else str(classified)  # whichever broker it names
        if cause not in self._told:
            self._told.add(cause)
            self._tell(GroupTrouble(classified))
