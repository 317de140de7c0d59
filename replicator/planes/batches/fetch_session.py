"""A fetch session with one broker (KIP-227): partitions are named once, and then only what changes. Sans-I/O.

Used by `fetcher`. The rules are those of org.apache.kafka.clients.FetchSessionHandler. Invariant: the broker reads the
partitions of the last `next_request`, from its offsets, and no others: whatever leaves that in doubt ends the session,
and the next request names all of them again.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from replicator.model.fetches import FetchAnswer, FetchAsk, FetchFrom, FetchKey

_NO_SESSION, _WHOLE = 0, 0
_EPOCH_MAX = 2**31 - 1


class FetchSessionHandler:
    """One request at a time: `next_request`, then `answered` or `lost`."""

    def __init__(self) -> None:
        self._id, self._epoch = _NO_SESSION, _WHOLE
        self._named: dict[FetchKey, FetchFrom] = {}

    def next_request(self, wanted: Mapping[FetchKey, FetchFrom]) -> FetchAsk:
        """Make the request that has exactly these partitions read."""
        named, self._named = self._named, dict(wanted)
        if self._epoch == _WHOLE:
            return FetchAsk(self._id, _WHOLE, tuple(wanted.items()))
        # Nearly all are the same objects as before: of thousands of partitions, a few have records at a time.
        changed = tuple(
            (key, start) for key, start in wanted.items() if (before := named.get(key)) is not start and before != start
        )
        gone = () if named.keys() <= wanted.keys() else tuple(key for key in named if key not in wanted)
        return FetchAsk(self._id, self._epoch, changed, gone)

    def answered(self, answer: FetchAnswer) -> bool:
        """Take the answer; return whether its partitions count. If not, the next request is a whole one."""
        if answer.code != ErrorCode.none:
            if answer.code == ErrorCode.fetch_session_id_not_found:
                self._id = _NO_SESSION
            self.lost()
            return False
        told = [part.key for part in answer.parts]
        if len(set(told)) < len(told) or not self._named.keys() >= set(told):
            self.lost()
            return False
        if self._epoch == _WHOLE and len(told) < len(self._named):  # all but empty for a client that is throttled
            self.lost()
            return False
        if answer.session_id == _NO_SESSION:  # the broker has no room for one
            self._id, self._epoch, self._named = _NO_SESSION, _WHOLE, {}
        else:
            self._id, self._epoch = answer.session_id, 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def lost(self) -> None:
        """Take note that no answer comes, or none that can be relied on. The id lets the broker end the session."""
        self._epoch, self._named = _WHOLE, {}
