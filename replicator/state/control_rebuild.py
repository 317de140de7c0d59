"""What a control topic that was lost is made of, by what else stands on the target. Pure; used by `flow.rebuilding`.

Invariants, parts of invariant 2
- The new generation is above each one that anything names: claims, occurrences and repairs, positions, transactional
  ids, and what is left of the topic.
- Each of those is written as if it were open, with as many lanes as it has ids, in the transaction of the new one's
  `preparing`: so whoever finishes the change, this command or a worker, fences all of them before anything is copied.
- Nothing is guessed where what stands contradicts itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from replicator.config.messages import suggestion
from replicator.model.checkpoint import NOBODY, Position, Stored, Unreadable
from replicator.model.counting import counted
from replicator.model.errors import ConfigError, Incident, TakenOver
from replicator.model.partition import Partition
from replicator.state.claims import Claims
from replicator.state.control_topic import Control
from replicator.state.decisions import NotDecided, Objection
from replicator.state.generation import Generation, Kind, Phase
from replicator.workers.settings import OwnFile

NEWER_FORMAT = "newer_format"
NOT_RESTORED = (
    "decisions about incidents that no lane has acted on yet (those that were acted on stand in the claims topic)",
    "what was paused, and rates that were set",
    "where partitions begin that were not copied yet, as start was resolved: they begin at earliest; with "
    "new_topics: ignore topics of which nothing was copied yet are taken for new ones",
    "which flow files the flow has had: this file's settings hold",
    "a note of the last failover, and whether it was undone",
)
"""What stood in the topic and nowhere else."""


@dataclass(frozen=True, slots=True)
class ControlEvidence:
    """What stands on the target of a flow. `control` None: there is no such topic. `positions` by target partition;
    `ids`: its transactional ids, as all brokers list them."""

    control: Control | None
    claims: Claims
    positions: Mapping[Partition, Stored]
    ids: Collection[str]


@dataclass(frozen=True, slots=True)
class RebuiltControl:
    """The records that are written in one transaction, the new generation last. `lost`: what is wrong with the topic as
    it is."""

    lost: str
    earlier: tuple[Generation, ...]
    opened: Generation

    @property
    def records(self) -> tuple[Generation, ...]:
        """All of them."""
        return (*self.earlier, self.opened)


def lanes_of_ids(flow: str, ids: Iterable[str]) -> dict[int, int]:
    """Return, by generation, how many lanes it may have, by the highest number among its transactional ids."""
    pattern, found = re.compile(rf"eos\.{re.escape(flow)}\.(\d+)\.(\d+)"), dict[int, int]()
    for match in filter(None, map(pattern.fullmatch, ids)):
        generation, lane = int(match[1]), int(match[2])
        found[generation] = max(found.get(generation, 0), lane + 1)
    return found


@dataclass(frozen=True, slots=True)
class StillFailedOver:
    """What somebody says is failed over still: the `whole` flow, or some source `topics` of it, or nothing."""

    whole: bool = False
    topics: frozenset[str] = frozenset()


def rebuilt(
    flow: str,
    standing: ControlEvidence,
    own: OwnFile,
    lanes: int,
    by: str,
    now_ms: int,
    still: StillFailedOver = StillFailedOver(),
) -> RebuiltControl:
    """Make the records of a topic that was lost. `own`: the flow file, with the id of the source cluster; `lanes`: how
    many the new generation has; `still`: what it doesn't copy until `failover --undo`.

    Raises NotDecided where nothing is lost, or what stands contradicts itself; ConfigError for a topic that was never
    copied; Incident `newer_format`.
    """
    _check_contradictions(standing, own.source_cluster)
    _check_topics(flow, still.topics, standing.claims)
    known = _generations(flow, standing)
    control = standing.control or Control()
    newest = max(known)
    if control.begun and control.newest >= newest:
        why = f"the control topic knows generation {control.newest}, and nothing on the target is of a later one"
        raise NotDecided(Objection.NOTHING_LOST, f"{why}: start the flow")
    lost = "it doesn't exist" if standing.control is None else "it holds neither an open nor a preparing generation"
    if control.begun:
        lost = f"it knows generation {control.newest}, and something on the target is of generation {newest}"
    earlier = tuple(
        Generation(number, Phase.OPEN, count, Kind.ROUNDS, at_ms=now_ms, by=by)  # of a kind that no lanes are known of
        for number, count in sorted(known.items())
        if number not in control.generations
    )
    listing = control.first_listing() or _claimed(standing.claims)
    before = control.generations.get(control.newest)  # whether its topics were given back since isn't known
    number = max(newest, control.newest) + 1
    opened = Generation(
        number,
        Phase.PREPARING,
        1 if still.whole else lanes,
        Kind.FROZEN if still.whole else Kind.LIVE,
        listing,
        now_ms,
        by=by,
        start_records=_start_records(control),
        settings=own.settings,
        revision=own.revision,
        balanced=bool(listing) and not still.whole,
        source_cluster=own.source_cluster,
        failed_over={**dict.fromkeys(sorted(still.topics), number), **({} if before is None else before.failed_over)},
    )
    return RebuiltControl(lost, earlier, opened)


def check_stopped(flow: str, positions: Mapping[Partition, Stored], members: int) -> None:
    """Raise TakenOver where somebody runs the flow, or a worker has died that did: nobody can tell these apart."""
    if members:
        raise TakenOver(f"flow {flow}: its lanes are shared by {counted(members, 'member')} of its group: stop them")
    owners = {it.evidence.owner for it in positions.values() if isinstance(it, Position)} - {NOBODY}
    if owners:
        who = ", ".join(sorted(owners))
        raise TakenOver(f"flow {flow}: {who} holds its positions. Stop it, or, if it has died, take over: --take-over")


def _check_contradictions(standing: ControlEvidence, source_cluster: str) -> None:
    claims = standing.claims.claims
    if not claims and not standing.positions:
        why = "the flow has neither claims nor positions: it has never run, and run makes its topics"
        raise NotDecided(Objection.NOTHING_LOST, why)
    for at, stored in sorted(standing.positions.items()):
        if isinstance(stored, Unreadable) and stored.incident == NEWER_FORMAT:
            raise Incident(NEWER_FORMAT, stored.why, topic=at.topic, partition=at.partition)
    unclaimed = sorted(at for at in standing.positions if at not in claims)
    if unclaimed:
        why = f"{unclaimed[0]} has a position and no claim: claims are lost, too"
        raise NotDecided(Objection.CONTRADICTORY, why)
    sources = {claim.source_cluster for claim in claims.values()} - {""}
    sources |= {it.evidence.source_cluster for it in standing.positions.values() if isinstance(it, Position)}
    if sources - {source_cluster}:
        others = ", ".join(sorted(sources - {source_cluster}))
        why = f"claims or positions are of the source cluster {others}, the flow file's is {source_cluster}"
        raise NotDecided(Objection.CONTRADICTORY, why)


def _check_topics(flow: str, topics: Collection[str], claims: Claims) -> None:
    known = {claim.source.topic for claim in claims.claims.values()}
    for topic in sorted(topics):
        if topic not in known:
            raise ConfigError(
                f"flow {flow} has never copied a source topic {topic!r}{suggestion(topic, sorted(known))}"
            )


def _generations(flow: str, standing: ControlEvidence) -> dict[int, int]:
    """Return, by number, each generation that anything names, with how many lanes it may have."""
    claims, positions = standing.claims, standing.positions.values()
    named = {claim.generation for claim in claims.claims.values()}
    named |= {it.generation for it in claims.repairs} | {it.generation for it in claims.occurrences}
    named |= {it.evidence.generation for it in positions if isinstance(it, Position)}
    return dict.fromkeys(sorted(it for it in named if it > 0), 1) | lanes_of_ids(flow, standing.ids) or {1: 1}


def _claimed(claims: Claims) -> dict[str, int]:
    """Return the source topics that were claimed, with as many partitions as were."""
    found: dict[str, int] = {}
    for claim in claims.claims.values():
        found[claim.source.topic] = max(found.get(claim.source.topic, 0), claim.source.partition + 1)
    return dict(sorted(found.items()))


def _start_records(control: Control) -> int:
    """Return how many records say where partitions begin. Raise NotDecided where those that are left can't be read as a
    whole.
    """
    try:
        whole = control.starts() is not None or not control.start_records
    except Incident:
        whole = False
    if not whole:
        why = "the control topic holds some of the records of where partitions begin: delete the topic first"
        raise NotDecided(Objection.CONTRADICTORY, why)
    return len(control.start_records)
