"""Asks leaders of partitions, all at the same time: one that is dead or frozen holds up no other.

A thread for each broker that is asked, while it is asked: connecting and logging in block. Connections are kept for the
next question. Used by `offsets`.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from replicator.model.errors import ReplicatorError, Unreachable
from replicator.wire.access import Access
from replicator.wire.any_broker import body_at
from replicator.wire.connection import Address, Connection, ConnectionLost
from replicator.wire.response_limits import BadResponse

ATTEMPT_S, ATTEMPT_S_MAX = 1.0, 8.0
"""How long a broker may take to connect, or to send a bit of its answer: so many times as long as the last one."""
_TIMES_LONGER = 4.0
_SLICE_S = 0.25
_UNANSWERED_BYTES_MAX = 32 * 1024
"""Sent ahead at most: a broker takes no more requests while its answer isn't taken, and both sides would wait."""
IDLE_MAX = 2
"""Connections to one broker that are kept: `group_questions` asks while other answers are waited for."""
RESPONSE_BYTES_MAX = 2**26

TimedRequest = tuple[Callable[[Connection], bytes], float]
"""Writes a request for a connection, whose versions it asks for; and how much longer than others it may take, in s."""


class Leaders:
    """Of one cluster. `ask` and `close` are used by one thread."""

    def __init__(self, access: Access, client_id: str) -> None:
        self._access, self._client_id = access, client_id
        self._lock = threading.Lock()
        self._idle = defaultdict[Address, list[Connection]](list)
        self._used = set[Connection]()
        self._epoch = 0  # of `close`: connections made before it aren't kept
        self.attempt_s = ATTEMPT_S

    def ask(self, address: Address, requests: Sequence[TimedRequest], *, once: bool = False) -> Future[list[bytes]]:
        """Send the requests to one broker: all responses, behind their correlation ids, or ConnectionLost, Unreachable,
        Unsupported. `once`: they change something, and are not sent a second time where a connection that was kept
        breaks."""
        future: Future[list[bytes]] = Future()

        def run() -> None:
            try:
                future.set_result(self._answers(address, requests, once=once))
            except BaseException as error:  # noqa: BLE001 - `reason` raises it where the answer is taken
                future.set_exception(error)

        threading.Thread(target=run, name=f"{self._client_id} {address[0]}:{address[1]}", daemon=True).start()
        return future

    def _answers(self, address: Address, requests: Sequence[TimedRequest], *, once: bool) -> list[bytes]:
        with self._lock:
            idle, epoch = self._idle[address], self._epoch
            kept = idle.pop() if idle else None
        began_s = time.monotonic()
        if kept is not None and not kept.expired:
            try:
                return self._converse(kept, address, requests, epoch)
            except ConnectionLost:  # it may have been closed long since
                if once or time.monotonic() - began_s >= self.attempt_s:
                    raise
        deadline_s = time.monotonic() + self.attempt_s
        made = Connection(
            address, self._access, self._client_id, deadline_s=deadline_s, response_bytes_max=RESPONSE_BYTES_MAX
        )
        return self._converse(made, address, requests, epoch)

    def _converse(
        self, connection: Connection, address: Address, requests: Sequence[TimedRequest], epoch: int
    ) -> list[bytes]:
        with self._lock:
            self._used.add(connection)
        try:
            found = self._exchange(connection, requests)
        except BaseException:
            connection.close()
            raise
        finally:
            with self._lock:
                self._used.discard(connection)
        with self._lock:
            if epoch == self._epoch and len(self._idle[address]) < IDLE_MAX:
                self._idle[address].append(connection)
                return found
        connection.close()
        return found

    def _exchange(self, connection: Connection, requests: Sequence[TimedRequest]) -> list[bytes]:
        sent: list[tuple[int, int, float]] = []  # number, bytes, allowance
        found = list[bytes]()
        ahead = 0
        for write, allowance_s in requests:
            data = write(connection)
            while sent[len(found) :] and ahead + len(data) > _UNANSWERED_BYTES_MAX:
                ahead -= sent[len(found)][1]
                found.append(self._receive(connection, sent[len(found)]))
            limit_s = time.monotonic() + self.attempt_s + allowance_s
            sent.append((connection.send(data, limit_s), len(data), allowance_s))
            ahead += len(data)
        while len(found) < len(sent):
            found.append(self._receive(connection, sent[len(found)]))
        return found

    def _receive(self, connection: Connection, sent: tuple[int, int, float]) -> bytes:
        """Receive a response. A broker that sends some of it, however slowly, is waited for."""
        number, _, allowance_s = sent
        began_s = since_s = time.monotonic()
        seen = connection.received_bytes
        while True:
            limit_s = since_s + self.attempt_s + allowance_s + connection.throttled_s
            answer = connection.receive(number, min(limit_s, time.monotonic() + _SLICE_S))
            now_s = time.monotonic()
            if answer is not None:
                try:
                    body_at(answer, connection)
                except BadResponse as error:
                    raise Unreachable(f"{connection.where}: answers with {error}") from error
                self.attempt_s = max(ATTEMPT_S, min(ATTEMPT_S_MAX, _TIMES_LONGER * (now_s - began_s)))
                return answer
            if connection.received_bytes != seen:
                seen, since_s = connection.received_bytes, now_s
            elif now_s >= limit_s:
                raise ConnectionLost(f"{connection.where}: no answer in time")

    def unanswered(self) -> None:
        """Note that none of the brokers has answered in time: the next ones are given longer."""
        self.attempt_s = min(ATTEMPT_S_MAX, 2 * self.attempt_s)

    def close(self) -> None:
        """Let go of all connections; who waits for an answer is told that there will be none."""
        with self._lock:
            self._epoch += 1
            idle = [connection for each in self._idle.values() for connection in each]
            self._idle.clear()
            for connection in self._used:
                connection.interrupt()
        for connection in idle:
            connection.close()


def reason(future: Future[list[bytes]]) -> ReplicatorError | None:
    """Return why there is no answer; any error that isn't the replicator's own is raised."""
    error = future.exception()
    if error is None or isinstance(error, ReplicatorError):
        return error
    raise error
