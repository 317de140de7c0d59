"""Reads the flow's committed positions from the group's coordinator, stable ones. Used by `plane`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from replicator.kafka import failures
from replicator.model import checkpoint
from replicator.model.checkpoint import Stored
from replicator.model.errors import ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Committed, Partition
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi, classify_answer
from replicator.planes.batches_io.coordinators import Coordinators
from replicator.planes.batches_io.link import BrokerLink, Pieces, framed
from replicator.wire import offset_fetch
from replicator.wire.offset_fetch import FetchedOffsets

_TURN_S, _AGAIN_S = 0.25, 0.05
_MOVES = (AnswerClass.RETRY, AnswerClass.LOOK_UP)


class PositionReader:
    """Of one lane."""

    def __init__(
        self,
        cluster: str,
        group: str,
        client_id: str,
        coordinators: Coordinators,
        request_s: float,
        turn: Callable[[float], None],
    ) -> None:
        self._cluster, self._group, self._client_id = cluster, group, client_id
        self._coordinators, self._request_s, self._turn = coordinators, request_s, turn
        self._doing = f"read the positions of group {group!r}"
        self._right = f"Read and Describe on group {group!r}"

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, Stored | ReplicatorError | None]:
        """Read positions by *target* partition: None only for an explicit -1, a partition's own error is its value.

        Raises Retriable, Unreachable or NotAllowed when the whole question failed.
        """
        if not partitions:
            return {}
        until_s, why = time.monotonic() + self._request_s, ""
        self._coordinators.forget_denied(TxnApi.TXN_OFFSET_COMMIT)
        while time.monotonic() < until_s:
            answer = self._asked(partitions, until_s)
            if answer is None:
                why = ""
                continue
            class_ = classify_answer(TxnApi.FIND_COORDINATOR, answer.code)
            unstable = [at for at, (code, _) in answer.by_partition.items() if code == ErrorCode.unstable_offset_commit]
            if class_ in _MOVES:
                self._coordinators.look_up(TxnApi.TXN_OFFSET_COMMIT)
            elif answer.code:
                raise failures.classify_code(answer.code, self._cluster, self._doing, self._right)
            elif not unstable:
                return self._found(partitions, answer)
            else:
                why = (
                    f"a transaction with new offsets hasn't ended for {self._request_s:.0f} s: its producer is alive, "
                    "or the broker lost its marker (see kafka-transactions.sh find-hanging)"
                )
            self._pause(until_s)
        if why:
            raise Retriable(f"cluster {self._cluster!r}: cannot {self._doing}: {why}")
        raise Unreachable(
            f"cluster {self._cluster!r}: cannot {self._doing}: {self._coordinators.why or 'no answer in time'}"
        )

    def _pause(self, until_s: float) -> None:
        until_s = min(until_s, time.monotonic() + _AGAIN_S)
        while (left_s := until_s - time.monotonic()) > 0:
            self._turn(left_s)

    def _asked(self, partitions: Sequence[Partition], until_s: float) -> FetchedOffsets | None:
        """Ask once; None: no answer came, and the coordinator is looked up again."""
        link = self._coordinators.ready_link(TxnApi.TXN_OFFSET_COMMIT)
        if link is None:
            if (denied := self._coordinators.denied(TxnApi.TXN_OFFSET_COMMIT)) is not None:
                raise failures.classify_code(denied.code, self._cluster, self._doing, self._right)
            self._turn(max(0.0, min(_TURN_S, until_s - time.monotonic())))
            return None
        found: list[FetchedOffsets | None] = []

        def answered(link: BrokerLink, data: bytes | bytearray) -> None:
            answer = offset_fetch.read(bytes(data))
            link.throttle(answer.throttled_s, time.monotonic())
            found.append(answer)

        def lost(error: ReplicatorError) -> None:
            self._coordinators.why = str(error)
            self._coordinators.look_up(TxnApi.TXN_OFFSET_COMMIT)
            found.append(None)

        def write(link: BrokerLink, number: int) -> Pieces:
            link.version(offset_fetch.API)
            return framed(offset_fetch.request(self._client_id, self._group, partitions), number)

        link.ask(write, answered, lost, until_s)
        while not found:
            self._turn(_TURN_S)
        return found[0]

    def _found(
        self, partitions: Sequence[Partition], answer: FetchedOffsets
    ) -> dict[Partition, Stored | ReplicatorError | None]:
        found: dict[Partition, Stored | ReplicatorError | None] = {}
        for at in partitions:
            code, committed = answer.by_partition.get(at, (int(ErrorCode.unknown_server_error), Committed(-1, "")))
            if code:
                right = f"Describe on topic {at.topic!r}"
                found[at] = failures.classify_code(code, self._cluster, f"read the position of {at}", right)
            else:
                found[at] = checkpoint.stored(committed)
        return found
