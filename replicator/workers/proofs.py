"""Proofs of membership: what goes into their metadata, and what their answers prove. Pure; used by `membership`.

A proof is an OffsetCommit of the lane's partition of the lanes topic, in the workers' group. The coordinator accepts it
from a member of the current group generation only. It proves membership, not ownership: a commit for another member's
partition is accepted, too. So the lane must be in the local assignment as well, before it and after it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum, auto

METADATA_VERSION = 1
METADATA_BYTES_MAX = 4096
"""Kafka's default for offset.metadata.max.bytes."""
GONE = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"})
"""Kafka's names of the errors after which a worker is certainly no member; librdkafka calls `on_lost` only later."""


class BadProof(ValueError):
    """The metadata of a commit in the workers' group was not written by this program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofMetadata:
    """Who runs a lane, as others read it: `owner` as in positions, the program's `version`, the flow's `generation`,
    since when the owner has the lane (ms since 1970 UTC), and the hash of the settings that it runs."""

    owner: str
    version: str
    generation: int
    since_ms: int
    settings_hash: str

    def encode(self) -> str:
        """Write it for an OffsetCommit. Raises BadProof where a broker would refuse it for its size."""
        text = json.dumps({"v": METADATA_VERSION, **asdict(self)}, separators=(",", ":"))
        if len(text.encode()) > METADATA_BYTES_MAX:
            raise BadProof(f"{len(text.encode())} bytes of metadata, more than {METADATA_BYTES_MAX}")
        return text


def decode(text: str) -> ProofMetadata:
    """Read the metadata of a committed offset; what newer versions add is left out. Raises BadProof."""
    try:
        body = json.loads(text)
        if type(body["v"]) is not int or body["v"] < 1:
            raise BadProof(f"format version {body['v']!r}")
        texts = [body[name] for name in ("owner", "version", "settings_hash")]
        numbers = [body[name] for name in ("generation", "since_ms")]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadProof(f"unreadable metadata of a lane: {error!r}") from error
    if not all(isinstance(each, str) for each in texts) or not all(type(each) is int for each in numbers):
        raise BadProof(f"metadata of a lane with fields of other types: {text[:200]!r}")
    owner, version, settings_hash = texts
    generation, since_ms = numbers
    return ProofMetadata(
        owner=owner, version=version, generation=generation, since_ms=since_ms, settings_hash=settings_hash
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofAnswer:
    """What became of a proof, as the thread that owns the group's consumer tells it.

    Args:
        number: the proof's.
        error: Kafka's name of the error; empty: accepted. A proof without answer in time has `REQUEST_TIMED_OUT`.
        member_before: the member id when the proof was begun; empty: none.
        member_after: when its answer came.
        in_assignment: whether the lane was in the local assignment both times.
    """

    lane: int
    number: int
    error: str
    member_before: str
    member_after: str
    in_assignment: bool


class ProofResult(Enum):
    """What an answer says."""

    PROVED = auto()
    AGAIN = auto()
    """It proves nothing: ask again."""
    NO_MEMBER = auto()
    """This worker is no member any more: what it had is lost."""


def result_of(answer: ProofAnswer) -> ProofResult:
    """Say what an answer proves. Whether it was begun after the last doubt is known by its number, not here."""
    if answer.error in GONE:
        return ProofResult.NO_MEMBER
    same = answer.member_before == answer.member_after != ""
    return ProofResult.PROVED if not answer.error and same and answer.in_assignment else ProofResult.AGAIN
