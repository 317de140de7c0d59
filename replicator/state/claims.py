"""Records of the flow's claims topic: claims, repairs, `occurrences` of incidents, and `flow_end`. Pure; lanes write,
`flow_state` reads.

A claim is the first transaction of an owner in a partition without a position: it holds the position (the
resolved start) and a claim record here, and no other record. So a crash in the first transaction leaves either
nothing or a position, and a claim without a position means that the position expired or was deleted.

Claims stand in the claims topic and never in the control topic: there, a lane's open transaction would hide what
follows it. The topic is compacted and has one partition per lane; a claim keeps its key when the lane count changes.

A repair says which source records were copied again, and where they stand on the target. It is written in the
transaction that copied them: where there is a repair, there are its records, and one that is begun again leaves them
out. Each transaction of a repair has a key of its own, so that compaction takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from replicator.model.commands import SOURCE_RECREATED, TARGET_RECREATED
from replicator.model.contradictions import OF_ANOTHER_SOURCE
from replicator.model.origins import NONE, Origin, Origins
from replicator.model.partition import Partition, Span
from replicator.state import config_fault, flow_end, kept_positions, occurrences
from replicator.state.config_fault import CONFIG_FAULT, ConfigFault
from replicator.state.envelope import NotOurs, unwrap, wrap
from replicator.state.flow_end import ENDED, FlowEnd
from replicator.state.kept_positions import POSITIONS_KEPT, KeptPositions
from replicator.state.occurrences import OCCURRENCE, Occurrence

CLAIM, REPAIR = "claim", "repair"
_KINDS = frozenset({CLAIM, REPAIR, OCCURRENCE, ENDED, CONFIG_FAULT, POSITIONS_KEPT})


@dataclass(frozen=True, slots=True)
class Claim:
    """Who claimed a target partition first, and from which source `offset` on.

    The ids and `target_end` (end offset) are those at the claim. Kafka deletes a deleted topic's committed offsets with
    it, so where a position is missing only these tell whether the topic is still the same.

    `source_cluster` is a cluster id, and `origins` say where that cluster had the records from, as far as it was known:
    see `origins`. Both are empty in claims of versions that didn't say so, until a lane writes them again.
    """

    target: Partition
    source: Partition
    source_topic_id: str
    target_topic_id: str
    target_end: int
    offset: int
    generation: int
    owner: str
    at_ms: int
    source_cluster: str = ""
    origins: Origins = NONE

    @property
    def key(self) -> bytes:
        """Key of the claim record."""
        return f"{CLAIM}/{self.target.topic}/{self.target.partition}".encode()

    def without_position(self, target_topic_id: str | None) -> str:
        """Return the incident where the partition has no position any more. `target_topic_id`: None without that
        topic.
        """
        if target_topic_id is None:
            return "target_topic_deleted"
        return "position_expired" if target_topic_id == self.target_topic_id else TARGET_RECREATED

    def why_without_position(
        self, source_cluster: str, source: Partition, source_topic_id: str | None, target_topic_id: str | None
    ) -> tuple[str, str]:
        """Say why the partition has no position any more: incident and detail.

        Args:
            source_cluster: a cluster id; as `source`, it is compared only where `source_topic_id` is given.
            source_topic_id: of the source's topic of now; None where that isn't known.
            target_topic_id: of the target's topic of now; None where there is none.
        """
        name = self.without_position(target_topic_id)
        claimed = f"{self.target} was claimed at source offset {self.offset}"
        wrong = None if source_topic_id is None else self.contradicted(source_cluster, source, source_topic_id)
        if target_topic_id is None:
            return name, f"{claimed}, and the target doesn't have this topic any more"
        if wrong is not None and (wrong[0] in OF_ANOTHER_SOURCE or name != TARGET_RECREATED):
            return wrong[0], f"{claimed} of {wrong[1]}; its position is gone"
        if name != TARGET_RECREATED:
            why = "it expired (offsets.retention.minutes) or was deleted"
            return name, f"{claimed}, but has no position any more: {why}"
        target = f"the target topic's id was {self.target_topic_id} then, and is {target_topic_id} now"
        if wrong is None:
            return name, f"{claimed}; {target}"
        source_ids = f"the source topic's id was {self.source_topic_id} then, and is {source_topic_id} now"
        return name, f"{claimed}; since then both topics were created again: {source_ids}; {target}"

    def contradicted(self, source_cluster: str, source: Partition, source_topic_id: str) -> tuple[str, str] | None:
        """Say what source it was that isn't the one now: incident and detail; None where it is the same."""
        if self.source_cluster and self.source_cluster != source_cluster:
            return (
                "source_cluster_changed",
                f"source cluster {self.source_cluster}, but the source is now cluster {source_cluster}",
            )
        if self.source != source:
            return "source_topic_changed", f"{self.source}, but the flow now copies {source} there"
        if self.source_topic_id != source_topic_id:
            return (
                SOURCE_RECREATED,
                f"the source topic with the id {self.source_topic_id}, but its id is {source_topic_id} now",
            )
        return None

    def former_topic_ids(
        self, incident: str, source_cluster: str, source: Partition, source_topic_id: str, target_topic_id: str
    ) -> tuple[str, str]:
        """Return the id of the topic that was claimed, where another one is there now as this incident says, and that
        of the other side's topic where that is another one, too; empty where it is the same, and both where the
        incident doesn't say what is so, or the claim is of another source."""
        wrong = self.contradicted(source_cluster, source, source_topic_id)
        if wrong is not None and wrong[0] != SOURCE_RECREATED:
            return "", ""
        here = "" if wrong is None else self.source_topic_id
        there = "" if self.target_topic_id == target_topic_id else self.target_topic_id
        found = (here, there) if incident == SOURCE_RECREATED else (there, here)
        return found if found[0] else ("", "")

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value of the claim record."""
        content = {
            "target": [*self.target],
            "source": [*self.source],
            "source_topic_id": self.source_topic_id,
            "target_topic_id": self.target_topic_id,
            "target_end": self.target_end,
            "offset": self.offset,
            "generation": self.generation,
            "owner": self.owner,
            "at_ms": self.at_ms,
            "source_cluster": self.source_cluster,
            "origins": [[*hop] for hop in sorted(self.origins)],
        }
        return self.key, wrap(CLAIM, content)

    def renewed(self, source_cluster: str, origins: Origins, generation: int, owner: str, now_ms: int) -> Claim | None:
        """Return the claim as it is to be written again, with more origins; None if it says all this already."""
        if self.source_cluster == source_cluster and origins <= self.origins:
            return None
        return replace(
            self,
            source_cluster=source_cluster,
            origins=self.origins | origins,
            generation=generation,
            owner=owner,
            at_ms=now_ms,
        )


@dataclass(frozen=True, slots=True)
class Repair:
    """One transaction of a repair: `runs` of consecutive source offsets, which stand one after the other on the target
    from `first_target` on, without a gap. `lost_end`: the position covered records at the target's end that it
    had lost, and says nothing any more of those that this transaction hasn't copied.

    The topics' ids are empty in entries of versions that didn't say them. Nor did those say `lost_end`, so it may have
    been.
    """

    target: Partition
    source: Partition
    runs: tuple[Span, ...]
    first_target: int
    generation: int
    at_ms: int
    source_topic_id: str = ""
    target_topic_id: str = ""
    lost_end: bool = False

    @property
    def topic_ids(self) -> tuple[str, str]:
        """Ids of the source's and of the target's topic."""
        return self.source_topic_id, self.target_topic_id

    @property
    def records(self) -> int:
        """How many records were copied."""
        return sum(end - first for first, end in self.runs)

    @property
    def key(self) -> bytes:
        """Key of the repair's record."""
        at = self.target
        return f"{REPAIR}/{at.topic}/{at.partition}/{self.generation}/{self.runs[0][0]}".encode()

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value of the repair's record."""
        content = {
            "target": [*self.target],
            "source": [*self.source],
            "runs": [[first, end] for first, end in self.runs],
            "first_target": self.first_target,
            "generation": self.generation,
            "at_ms": self.at_ms,
            "source_topic_id": self.source_topic_id,
            "target_topic_id": self.target_topic_id,
            "lost_end": self.lost_end,
        }
        return self.key, wrap(REPAIR, content)


ClaimsRecord = Claim | Repair | Occurrence | FlowEnd | ConfigFault | KeptPositions


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims topic as it stands: the claim of each target partition, all repairs, all occurrences of incidents, and
    how the flow has ended last in a process that went on, whether that could read the flow file again, and who has kept
    the positions of a flow that was failed over."""

    claims: Mapping[Partition, Claim]
    repairs: tuple[Repair, ...]
    occurrences: tuple[Occurrence, ...] = ()
    ended: FlowEnd | None = None
    config_fault: ConfigFault | None = None
    kept: KeptPositions | None = None

    def of_topic(self, target_topic: str) -> tuple[Claim, ...]:
        """Return the claims of one target topic."""
        return tuple(claim for at, claim in self.claims.items() if at.topic == target_topic)

    def open_occurrences(self) -> dict[Partition, list[Occurrence]]:
        """Return the occurrences that are open, by target partition; of each the one that was found last comes
        first.
        """
        found: dict[Partition, list[Occurrence]] = {}
        for it in sorted(self.occurrences, key=lambda it: it.found_ms, reverse=True):
            if it.is_open:
                found.setdefault(it.target, []).append(it)
        return found


def read_claims(records: Iterable[tuple[bytes | None, bytes | None]]) -> Claims:
    """Read all records of the claims topic. The newest of each key counts, and a tombstone withdraws it.

    Partitions come one after the other, so a key that several lanes have written comes in any order of generations.
    Within one generation only one lane writes it, to one partition, where the log's order is certain: the time that a
    record says is never compared, as a clock may be set back. What is found of one target partition and generation
    stands in that order, too.

    Raises NotOurs and NewerFormat, see `envelope`.
    """
    newest: dict[bytes, ClaimsRecord] = {}
    for key, value in records:
        if key is None:
            raise NotOurs("a record without key")
        if value is None:
            newest.pop(key, None)
            continue
        body = unwrap(key, value, _KINDS)
        if body is None:
            continue
        found = _decoded(key, body)
        before = newest.get(key)
        if before is None or before.generation <= found.generation:
            newest.pop(key, None)  # so that they stand in the order of their newest records
            newest[key] = found
    claims = {found.target: found for found in newest.values() if isinstance(found, Claim)}
    occurred = tuple(found for found in newest.values() if isinstance(found, Occurrence))
    repairs = tuple(found for found in newest.values() if isinstance(found, Repair))
    ended = next((found for found in newest.values() if isinstance(found, FlowEnd)), None)
    fault = next((found for found in newest.values() if isinstance(found, ConfigFault)), None)
    kept = next((found for found in newest.values() if isinstance(found, KeptPositions)), None)
    return Claims(claims, repairs, occurred, ended, fault, kept)


def _decoded(key: bytes, body: Mapping[str, Any]) -> ClaimsRecord:
    kinds: Mapping[str, Callable[[Mapping[str, Any]], ClaimsRecord]]
    kinds = {
        CLAIM: _claim,
        REPAIR: _repair,
        OCCURRENCE: occurrences.decode,
        ENDED: flow_end.decode,
        CONFIG_FAULT: config_fault.decode,
        POSITIONS_KEPT: kept_positions.decode,
    }
    try:
        found = kinds[body["kind"]](body)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise NotOurs(f"unreadable record {key!r}: {error!r}") from error
    if found.key != key:
        raise NotOurs(f"record {key!r} holds the {body['kind']} of {found.key!r}")
    return found


def _claim(body: Mapping[str, Any]) -> Claim:
    return Claim(
        _partition(body["target"]),
        _partition(body["source"]),
        str(body["source_topic_id"]),
        str(body["target_topic_id"]),
        int(body["target_end"]),
        int(body["offset"]),
        int(body["generation"]),
        str(body["owner"]),
        int(body["at_ms"]),
        str(body.get("source_cluster", "")),
        frozenset(Origin(*map(str, hop)) for hop in body.get("origins", ())),
    )


def _repair(body: Mapping[str, Any]) -> Repair:
    runs = tuple((int(first), int(end)) for first, end in body["runs"])
    if not runs or any(first >= end for first, end in runs):
        raise ValueError(f"runs {body['runs']!r}")
    return Repair(
        _partition(body["target"]),
        _partition(body["source"]),
        runs,
        int(body["first_target"]),
        int(body["generation"]),
        int(body["at_ms"]),
        str(body.get("source_topic_id", "")),
        str(body.get("target_topic_id", "")),
        bool(body.get("lost_end", True)),
    )


def _partition(pair: Any) -> Partition:
    topic, number = pair
    return Partition(str(topic), int(number))
