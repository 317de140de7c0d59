"""Rebuilds a flow's control topic that was deleted, or has lost records: `eos-replicate rebuild-control`.

In two steps: `look` says what would be done, to be shown; `rebuild` does it, by what stands on the target once the
control id is initialised. What is decided by that is in `state.control_rebuild`.

    1 create      the topic, if there is none
    2 fence       whoever else changes it, by its transactional id
    3 look        at claims, positions, and the flow's transactional ids of all brokers
    4 prepare     earlier generations and the new one, in one transaction
    5 open        every id of all of them is fenced, then the new generation opens

Killed before 4 is committed, nothing was done but an empty topic made, which is as good as none; after that whoever
starts the flow goes on with 5.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

from replicator.config import Flow
from replicator.failpoints import Failpoint, nothing
from replicator.flow.group_members import count_members_of
from replicator.flow.retrying import beside_others
from replicator.flow.topics import ControlPlane, check_control_topic, internal_topics
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import names
from replicator.model.checkpoint import Stored
from replicator.model.errors import Fatal, ReplicatorError
from replicator.model.names import process_name
from replicator.model.partition import Partition
from replicator.state.control import Changer
from replicator.state.control_rebuild import ControlEvidence, RebuiltControl, StillFailedOver, check_stopped, rebuilt
from replicator.state.control_topic import Control
from replicator.state.decisions import NotDecided, Objection
from replicator.state.generation import Generation
from replicator.state.own_file import lanes_wanted, own_file
from replicator.wire.producer_questions import ProducerQuestions

OTHERS_S = 30.0


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What would be done, and the `claims`, `positions` and transactional `ids` that it follows from."""

    made: RebuiltControl
    claims: int
    positions: int
    ids: int


class ControlRebuild:
    """One call of the command. Raises in all methods NotDecided; TakenOver where somebody runs the flow; Incident of
    the flow's own topics; Unreachable, NotAllowed, Retriable, Fenced."""

    def __init__(
        self,
        flow: Flow,
        *,
        take_over: bool = False,
        failover_undone: bool = False,
        still: StillFailedOver = StillFailedOver(),  # noqa: B008 - it is frozen
        failpoint: Failpoint = nothing,
        connect_timeout_ms: int | None = None,
    ) -> None:
        """`take_over`: also from a worker that holds the positions. `failover_undone`: somebody says that the flow,
        which was failed over once, isn't now. `still`: somebody says what of it is."""
        self._flow, self._take_over, self._failover_undone = flow, take_over, failover_undone
        self._still = still
        self._failpoint, self._connect_timeout_ms = failpoint, connect_timeout_ms
        self._by = process_name()

    def look(self) -> RebuildPlan:
        """Say what would be done. Changes nothing."""
        with ControlPlane(self._flow, connect_timeout_ms=self._connect_timeout_ms) as plane:
            source, _ = plane.connect()
            return self._plan(plane, source.cluster_id, plane.state.control_confirmed())

    def rebuild(self, shown: RebuildPlan) -> Generation:
        """Do what was `shown`, by what stands now; return the generation that is open. Raises NotDecided also where it
        would be another generation, or other lanes."""
        with ControlPlane(self._flow, connect_timeout_ms=self._connect_timeout_ms) as plane:
            source, _ = plane.connect()
            self._plan(plane, source.cluster_id, plane.state.control_confirmed())  # before anything is made
            self._make_topic(plane)
            self._failpoint("rebuild_begun")

            def make(control: Control) -> tuple[Generation, ...]:
                made = self._plan(plane, source.cluster_id, control).made
                before, now = shown.made.opened, made.opened
                if (before.number, before.lanes) != (now.number, now.lanes):
                    why = f"it would be generation {now.number} now, and not {before.number}"
                    raise NotDecided(Objection.OUTDATED, f"{why}: something has written to the target meanwhile")
                self._failpoint("rebuild_listed")
                return made.records

            def attempt() -> Generation:
                at = self._flow, plane.state, self._by, _ignored, _no_starts
                return Changer(*at, first=True, step=self._failpoint).rebuild(make)

            return beside_others(attempt, others_s=OTHERS_S)

    def _make_topic(self, plane: ControlPlane) -> None:
        spec = internal_topics(self._flow, 1)[0]
        answer = plane.create([spec])[spec.name]
        if isinstance(answer, ReplicatorError):
            raise answer
        check_control_topic(plane.internal()[spec.name])

    def _plan(self, plane: ControlPlane, source_cluster: str, control: Control | None) -> RebuildPlan:
        flow = self._flow
        own = plane.internal()
        if names.control_topic(flow.name) in own:
            check_control_topic(own[names.control_topic(flow.name)])
        listing = plane.list_source(configs=False)
        claims = plane.state.claims()
        positions = self._positions(plane, listing, claims.claims)
        ids = self._transactional_ids()
        standing = ControlEvidence(control, claims, positions, ids)
        lanes = lanes_wanted(flow, {name: info.partitions for name, info in listing.items()}, control or Control())
        now_ms = time.time_ns() // 1_000_000
        made = rebuilt(flow.name, standing, own_file(flow, source_cluster), lanes, self._by, now_ms, self._still)
        self._check_failover(plane)
        if not self._take_over:
            check_stopped(flow.name, positions, count_members_of(plane))
        return RebuildPlan(made, len(claims.claims), len(positions), len(ids))

    def _positions(
        self, plane: ControlPlane, listing: Mapping[str, TopicInfo], claimed: Collection[Partition]
    ) -> dict[Partition, Stored]:
        """Read the positions of all partitions that were claimed, and of the flow's target topics as they are."""
        there = dict(plane.list_target(listing))
        there |= plane.target.topics({at.topic for at in claimed} - there.keys())
        asked = [Partition(name, number) for name, info in there.items() for number in range(info.partitions)]
        found = offset_reader.positions(self._flow, asked, stable=False)
        return {at: stored for at, stored in found.items() if stored is not None}

    def _transactional_ids(self) -> list[str]:
        """Read the transactional ids as all brokers list them. Raises what one says instead: an id that isn't seen
        isn't fenced.
        """
        prefix = names.transactional_prefix(self._flow.name)
        with closing(ProducerQuestions(self._flow.target, f"eos-replicate.{self._flow.name}.rebuild")) as questions:
            found = questions.transactional_ids()
        for error in found.unanswered:
            raise error
        return [it for it in found.producer_ids if it.startswith(prefix)]

    def _check_failover(self, plane: ControlPlane) -> None:
        topic = names.cutovers_topic(self._flow.name)
        if self._failover_undone or self._still != StillFailedOver() or topic not in plane.target.topics((topic,)):
            return
        why = f"there is {topic}, so the flow was failed over once; whether that was undone stood in the control topic"
        say = (
            "--failover-was-undone, or, if it stands, --failed-over (the whole flow) or --failed-over-topics NAME,NAME"
        )
        raise NotDecided(Objection.FAILED_OVER, f"{why}. Say how it is: {say}")


def _ignored(text: str) -> None:
    """Ignore an error that librdkafka reports by its callback: if a call fails for it, the call raises it."""


def _no_starts(partitions: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
    raise Fatal("earlier generations of a flow stand in its control topic")
