"""How a reader fetches: by topic name or id, each request whole or in a fetch session (KIP-227, KIP-516)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.history import History, ViolationKind
from embedded_broker.simulation.wire import SimulatedClient

SESSIONS_SINCE, TOPIC_IDS_SINCE = 7, 13
VERSIONS = (6, 7, 12, 13, 15, 18)
PARTITION_BYTES_MAX = (300, 2_000)
"""From two batches of each partition on: who gets only a few at a time has some left when nobody writes any more."""
WRONG_EPOCH_CHANCE = 0.03
WRONG_EPOCH_STEP = 7
INITIAL, FINAL = 0, -1


@dataclass(frozen=True, slots=True)
class Style:
    """Of one reader."""

    version: int = 12
    in_session: bool = False
    partition_bytes_max: int = PARTITION_BYTES_MAX[-1]

    @classmethod
    def of(cls, random: Random) -> Style:
        """Choose any of them."""
        version = random.choice(VERSIONS)
        in_session = version >= SESSIONS_SINCE and random.random() < 0.7
        return cls(version, in_session, random.choice(PARTITION_BYTES_MAX))


@dataclass(slots=True)
class _ClientFetchSession:
    """As a client keeps it; `told` is the offset that the broker has of each partition."""

    session_id: int
    epoch: int
    told: dict[int, int]


class Fetcher:
    """Fetches partitions of one topic."""

    def __init__(
        self, client: SimulatedClient, history: History, name: str, topic: str, committed: bool, style: Style
    ) -> None:
        self._client, self._history, self._name, self._topic = client, history, name, topic
        self._committed, self._style = committed, style
        self._session = _ClientFetchSession(0, INITIAL, {})
        self._topic_id: Any = None

    async def fetch(self, positions: Mapping[int, int], max_wait_ms: int) -> Sequence[Any]:
        """Fetch the partitions of one response; none if the session is over. Raises NoResponse."""
        if self._style.version >= TOPIC_IDS_SINCE and self._topic_id is None:
            self._topic_id = await self._find_topic_id()
        session, is_wrong = self._session, self._tries_wrong_epoch()
        before = dict(session.told)
        # Until the answer is here it isn't known what the broker knows: without one, the next request is whole.
        self._session = _ClientFetchSession(session.session_id, INITIAL, {})
        answer = await self._client.call(
            "fetch",
            self._style.version,
            max_wait=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(self._committed),
            **self._asked(session, positions, is_wrong),
        )
        if is_wrong:
            self._check_refused(answer)
            self._session = _ClientFetchSession(session.session_id, session.epoch, before)
            return ()
        error_code = getattr(answer, "error_code", ErrorCode.none)
        if error_code is not ErrorCode.none:
            # A restart has ended the session, or another one has taken its place.
            if error_code is not ErrorCode.fetch_session_id_not_found or not session.epoch:
                self._history.found(ViolationKind.BROKEN, f"{self._name}: fetch gave {error_code.name}")
            return ()
        if self._style.in_session and answer.session_id:
            self._session = _ClientFetchSession(answer.session_id, session.epoch + 1, dict(positions))
        return answer.responses[0].partitions if answer.responses else ()

    def _asked(self, session: _ClientFetchSession, positions: Mapping[int, int], is_wrong: bool) -> dict[str, Any]:
        """Return what a request names: everything, or what has changed since the last one."""
        if not self._style.in_session:
            return {"session_epoch": FINAL, "topics": self._named(positions)}
        changed = {index: offset for index, offset in positions.items() if session.told.get(index) != offset}
        forgotten = [index for index in session.told if index not in positions]
        return {
            "session_id": session.session_id,
            "session_epoch": session.epoch + (WRONG_EPOCH_STEP if is_wrong else 0),
            "topics": self._named(changed),
            "forgotten_topics_data": [{**self._key, "partitions": forgotten}] if forgotten else [],
        }

    def _named(self, positions: Mapping[int, int]) -> list[dict[str, Any]]:
        partitions = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": self._style.partition_bytes_max}
            for index, offset in positions.items()
        ]
        return [{**self._key, "partitions": partitions}] if partitions else []

    @property
    def _key(self) -> dict[str, Any]:
        return {"topic": self._topic, "topic_id": self._topic_id}

    async def _find_topic_id(self) -> Any:
        answer = await self._client.call("metadata", 12, topics=[{"name": self._topic}])
        return answer.topics[0].topic_id

    def _tries_wrong_epoch(self) -> bool:
        return self._session.epoch > INITIAL and self._client.random.random() < WRONG_EPOCH_CHANCE

    def _check_refused(self, answer: Any) -> None:
        if answer.error_code not in (ErrorCode.invalid_fetch_session_epoch, ErrorCode.fetch_session_id_not_found):
            detail = f"{self._name}: a fetch with the wrong session epoch gave {answer.error_code.name}"
            self._history.found(ViolationKind.BROKEN, detail)
