"""A source cluster in memory: logs, leaders and fetch sessions as the embedded broker has them, behind the bytes of
requests and responses."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from embedded_broker.api.fetch_sessions import Asked, FetchSessions, SessionError, named
from embedded_broker.wire import schema
from replicator.model.fetches import EpochEnd, EpochQuestion, FetchAnswer, FetchAsk
from replicator.model.partition import Partition
from replicator.wire import fetch
from tests.replicator.planes.batches.logs import EPOCH, Log
from tests.replicator.wire.fake_broker import response

VERSION, CLIENT = 17, "me"
HEADER_BYTES = 8 + 2 + len(CLIENT) + 1


class _Share:
    async def spent(self, steps: int) -> None:
        """A test has time."""


@dataclass
class ModelPart:
    """`leader` of -1: none. `codes`: what is answered next, instead of data."""

    log: Log
    leader: int = 0
    epoch: int = EPOCH
    start: int = 0
    codes: list[int] = field(default_factory=list)


@dataclass
class ModelSource:
    """One topic."""

    parts: dict[Partition, ModelPart]
    topic_id: bytes = b"0123456789abcdef"
    response_bytes_max: int = 1 << 30
    sessions: dict[int, FetchSessions] = field(default_factory=dict)
    asked: list[FetchAsk] = field(default_factory=list)

    def leaders(self) -> dict[int, tuple[int, int, int]]:
        """What Metadata says."""
        return {
            at.partition: (0 if each.leader >= 0 else 5, each.leader, each.epoch) for at, each in self.parts.items()
        }

    def epoch_end(self, broker: int, at: Partition, question: EpochQuestion) -> EpochEnd:
        """All that stands in these logs has one epoch."""
        part = self.parts[at]
        if (code := self._hindered(part, broker, question.leader_epoch)) != ErrorCode.none:
            return EpochEnd(code)
        return EpochEnd(0, EPOCH, part.log.end) if question.epoch >= EPOCH else EpochEnd(0, question.epoch, part.start)

    @staticmethod
    def _hindered(part: ModelPart, broker: int, epoch: int) -> int:
        if part.codes:
            return part.codes.pop(0)
        if part.leader != broker:
            return ErrorCode.not_leader_or_follower
        if epoch not in (-1, part.epoch):
            return ErrorCode.fenced_leader_epoch if epoch < part.epoch else ErrorCode.unknown_leader_epoch
        return ErrorCode.none

    def fetch(self, broker: int, ask: FetchAsk) -> FetchAnswer:
        """Answer a request, by way of its bytes."""
        self.asked.append(ask)
        data = fetch.request(CLIENT, VERSION, ask, fetch.FetchLimits(self.response_bytes_max, 500))
        request = schema.load("fetch", VERSION).read(data, HEADER_BYTES)
        sessions = self.sessions.setdefault(broker, FetchSessions())
        asked = asyncio.run(named(request, VERSION, _Share()))  # type: ignore[arg-type]
        try:
            fetching = sessions.begin(request, VERSION, asked, 0.0)
        except SessionError as error:
            return self._read({"error_code": error.error_code, "responses": []})
        left, answers = self.response_bytes_max, list[dict[str, Any]]()
        for each in fetching.asked:
            answers.append(self._part(broker, each, left, first=left == self.response_bytes_max))
            left = max(0, left - len(answers[-1]["records"]))
        session = fetching.session
        session_id = session.session_id if session else sessions.open(request, VERSION, fetching, answers, 0.0)
        topics = [{"topic_id": topic, "partitions": [answer]} for topic, answer in fetching.tell(answers)]
        return self._read({"session_id": session_id, "responses": topics})

    @staticmethod
    def _read(answer: dict[str, Any]) -> FetchAnswer:
        return fetch.read(response("fetch", VERSION, 1, answer)[4:], 9)

    def _part(self, broker: int, asked: Asked, left: int, *, first: bool) -> dict[str, Any]:
        data = asked.data
        found = next((part for at, part in self.parts.items() if at.partition == data.partition), None)
        nothing = {"partition_index": data.partition, "high_watermark": -1, "log_start_offset": -1, "records": b""}
        if found is None or asked.topic != UUID(bytes=self.topic_id):
            return {**nothing, "error_code": ErrorCode.unknown_topic_id}
        if (code := self._hindered(found, broker, data.current_leader_epoch)) != ErrorCode.none:
            return {**nothing, "error_code": code}
        log, offset = found.log, data.fetch_offset
        if not found.start <= offset <= log.end:
            return {**nothing, "error_code": ErrorCode.offset_out_of_range}
        aborted = [{"producer_id": one, "first_offset": since} for one, since in log.aborted_from(offset)]
        return {
            "partition_index": data.partition,
            "error_code": ErrorCode.none,
            "high_watermark": log.end,
            "last_stable_offset": log.stable,
            "log_start_offset": found.start,
            "aborted_transactions": aborted,
            "records": self._records(log, offset, min(left, data.partition_max_bytes), first=first),
        }

    @staticmethod
    def _records(log: Log, offset: int, bytes_max: int, *, first: bool) -> bytes:
        """Whole batches below the last stable offset; one at least of the first partition (KIP-74)."""
        found = b""
        for _, last, data in log.batches:
            if last < offset or last >= log.stable:
                continue
            if len(found) + len(data) > bytes_max and not (first and not found):
                break
            found += data
        return found
