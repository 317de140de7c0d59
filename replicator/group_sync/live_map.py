"""The flow's offset map and positions, read again and again over connections that are kept: implements `LiveMap`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from replicator.config import Flow, routing
from replicator.flow.listing import copied_topics, known_to
from replicator.flow.occupied import check_frozen
from replicator.flow.topics import ControlPlane
from replicator.group_sync.newest_leaders import NewestLeaders
from replicator.group_sync.ports import SourceEnds
from replicator.kafka.offset_questions import STABLE
from replicator.kafka.topic_questions import TopicInfo, raised
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.partition import Partition
from replicator.state.control_topic import Control
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.translation.partition_maps import UNANSWERED, MappedPartition, Untold, read_partitions
from replicator.translation.translate import Translator


class KafkaLiveMap:
    """Of one flow. Used by one thread; `close` it. Every method raises ReplicatorError."""

    def __init__(self, flow: Flow, *, connect_timeout_ms: int | None = None) -> None:
        self._flow, self._clusters = flow, ControlPlane(flow, connect_timeout_ms=connect_timeout_ms)
        self._translator: Translator | None = None
        self._partitions: dict[str, list[Partition]] = {}
        self._target_topics: dict[str, str] = {}
        self._control: Control | None = None
        self._failed_over = frozenset[str]()
        self._source_leaders, self._target_leaders = NewestLeaders(), NewestLeaders()
        self._outdated: Mapping[Partition, ReplicatorError] = {}
        self._known: Collection[str] | None = None
        self._copies = copied_topics(flow, None)
        self._seen: dict[str, int] = {}  # partitions of source topics that were seen or claimed: asked for by name

    def close(self) -> None:
        """Let go of both clusters."""
        self._clusters.close()

    def read_failed_over(self) -> Collection[str]:
        """See `LiveMap`."""
        control = self._control = self._clusters.state.control_if_any()
        self._failed_over = frozenset(() if control is None else control.failed_over)
        claims = self._clusters.state.claims_if_any()
        self._known = known_to(control, claims)
        self._copies = copied_topics(self._flow, self._known)
        for claim in claims.claims.values() if claims is not None else ():
            topic, number = claim.source
            self._seen[topic] = max(self._seen.get(topic, 0), number + 1)
        return self._failed_over

    def known_topics(self) -> Collection[str] | None:
        """See `LiveMap`."""
        return self._known

    def refuse_frozen(self) -> None:
        """See `LiveMap`."""
        check_frozen(self._flow, self._control)

    def read(self) -> None:
        """See `LiveMap`."""
        self._translator = Translator(
            self._flow, partial(read_partitions, self._flow, clusters=self._clusters, each=True), "source"
        )
        self._outdated = self._source_leaders.learn(self._mapped())
        known = self._translator.partitions()
        ats = [at for at in known if self._copies(at.topic) and at.topic not in self._failed_over]
        partitions = {topic: list(of_topic) for topic, of_topic in groupby(ats, key=lambda at: at.topic)}
        if partitions != self._partitions:
            self._partitions = partitions

    def outdated(self) -> Mapping[Partition, ReplicatorError]:
        """See `LiveMap`."""
        return self._outdated

    def positions(self) -> Mapping[Partition, int]:
        """See `LiveMap`."""
        return {it.source: it.position for it in self._mapped()}

    def _mapped(self) -> Iterable[MappedPartition]:
        return () if self._translator is None else self._translator.mapped_partitions()

    def partitions(self) -> Mapping[str, Sequence[Partition]]:
        """See `LiveMap`."""
        return self._partitions

    def answers(self, asked: Collection[OffsetToTranslate]) -> Sequence[OffsetAnswer]:
        """See `LiveMap`."""
        assert self._translator is not None, "it is read first"
        return self._translator.answers(asked) if asked else []

    def nothing_between(self, at: Partition, first: int, end: int) -> bool:
        """See `LiveMap`."""
        return self._translator is not None and self._translator.nothing_between(at, first, end)

    def source_ends(self) -> SourceEnds:
        """See `LiveMap`. Topics that were seen before are asked for by name: without the right to see them the source
        leaves them out, as if they were deleted."""
        self._clusters.connect()
        described = self._clusters.source.describe(self._selected())
        sources = {name: info.partitions for name, info in described.items() if isinstance(info, TopicInfo)}
        self._seen |= sources
        there = self._at_target(sources)
        ats = [at for name, count in sources.items() for at in _of(name, count)]
        found = self._source_leaders.offsets(self._clusters.source, ats)
        ends = {at: it for at, it in found.items() if not isinstance(it, ReplicatorError)}
        unknown = {at: it for at, it in found.items() if isinstance(it, ReplicatorError)}
        for name, info in described.items():
            if isinstance(info, ReplicatorError):
                unknown |= dict.fromkeys(_of(name, self._seen.get(name, 1)), info)
        if unknown and not ends:
            raise unknown[min(unknown)]
        return SourceEnds(ends, {at: it for at, it in ends.items() if at.partition < there.get(at.topic, 0)}, unknown)

    def _selected(self) -> set[str]:
        return set(filter(self._copies, self._clusters.selected().union(self._seen)))

    def _at_target(self, sources: Mapping[str, int]) -> dict[str, int]:
        """Return how many partitions source topics have at the target; of one that may not be seen there as many as at
        the source: whoever notes something of it hears which right is missing."""
        described = self._clusters.target.describe(self._clusters.possible_targets(sources))
        there = {name: described.get(self.target_topic(name)) for name in sources}
        return {
            name: info.partitions if isinstance(info, TopicInfo) else sources[name]
            for name, info in there.items()
            if info is not None
        }

    def stable_ends(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """See `LiveMap`."""
        found = self._source_leaders.offsets(self._clusters.source, ats, STABLE)
        return {at: end for at, end in found.items() if not isinstance(end, ReplicatorError)}

    def unread(self) -> Mapping[Partition, ReplicatorError]:
        """See `LiveMap`."""
        return {it.source: Retriable(it.said) for it in self._unread() if self._copies(it.source.topic)}

    def _unread(self) -> Iterable[Untold]:
        found = () if self._translator is None else self._translator.untold_partitions()
        return (it for it in found if it.problem == UNANSWERED)

    def target_ends(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """See `LiveMap`."""
        asked = set(ats) - {it.target for it in self._unread()}
        found = self._target_leaders.offsets(self._clusters.target, asked, patient=True)
        return {at: raised(end) for at, end in found.items()}

    def ends_of(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """See `LiveMap`."""
        self._clusters.connect()
        found = self._source_leaders.offsets(self._clusters.source, ats, patient=True)
        return {at: raised(end) for at, end in found.items()}

    def ids_of(self, topics: Collection[str]) -> Mapping[str, str]:
        """Ask for the ids of source topics; those that it isn't told of are left out."""
        self._clusters.connect()
        found = self._clusters.source.describe(topics) if topics else {}
        return {name: info.topic_id for name, info in found.items() if isinstance(info, TopicInfo)}

    def target_topic(self, topic: str) -> str:
        """See `LiveMap`."""
        found = self._target_topics.get(topic)
        if found is None:
            found = self._target_topics[topic] = routing.target_topic(self._flow, topic)
        return found


def _of(topic: str, partitions: int) -> Iterator[Partition]:
    return (Partition(topic, number) for number in range(partitions))
