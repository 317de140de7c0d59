"""Where a flow's offset map stands, and up to where it can be relied on. Used by `local` and `verify`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from replicator.config import Delivery, Flow
from replicator.flow.topics import ControlPlane
from replicator.kafka.offset_questions import EARLIEST, LATEST, STABLE
from replicator.kafka.topic_questions import raised
from replicator.model import names
from replicator.model.errors import ConfigError, Incident, ReplicatorError
from replicator.model.partition import Partition, Span
from replicator.offset_map.fold import reached
from replicator.offset_map.topic import INDEX_PARTITIONS, MAP_PARTITIONS


@dataclass(frozen=True, slots=True)
class MapPlace:
    """The topic of a flow's offset map, and from where to where each partition of it is read. `open`: partitions of it
    in which a transaction stays open, with the last stable offset and the log's end. `index`: name and id of the topic
    of its index; None: it has none."""

    topic: str
    topic_id: str
    bounds: dict[int, Span]
    open: tuple[tuple[int, int, int], ...] = ()
    index: tuple[str, str] | None = None


def refuse_delivery(flow: Flow) -> None:
    """Raise ConfigError for a flow that has no offset map."""
    if flow.delivery is not Delivery.EXACTLY_ONCE:
        raise ConfigError(
            f"flow {flow.name} has delivery {flow.delivery.value}, and no offset map: its records are no part of a "
            "transaction. eos-replicate reconcile without --local compares contents"
        )


def place_of_map(
    flow: Flow, *, connect_timeout_ms: int | None = None, clusters: ControlPlane | None = None
) -> MapPlace:
    """Find the flow's offset map, after its positions were read. Arguments as of `connected`.
    The source isn't asked.

    Raises:
        Incident: map_lost: there is none; map_topic_unfit: it isn't one.
        Unreachable, NotAllowed, Retriable: see `ControlPlane`.
    """
    with connected(flow, connect_timeout_ms, clusters, source=False) as clusters:
        info = clusters.offsets_topic()
        if info is None:
            topic = names.offsets_topic(flow.name)
            raise Incident("map_lost", f"cluster {flow.target.name!r} has no topic {topic}", topic=topic)
        if info.partitions != MAP_PARTITIONS:
            why = f"it has {info.partitions} partitions, not {MAP_PARTITIONS}"
            raise Incident("map_topic_unfit", why, topic=info.name)
        ats = [Partition(info.name, number) for number in range(info.partitions)]
        starts, ends = (clusters.target.offsets(ats, end=end) for end in (False, True))

        def applied() -> bool:
            stable = clusters.target.offsets(ats, end=True, committed_only=True)
            return all(stable[at] >= ends[at] for at in ats)

        clusters.target.until(applied)  # what is still open then is left out, and said to be
        stable = clusters.target.offsets(ats, end=True, committed_only=True)
        bounds = {at.partition: (starts[at], max(starts[at], min(ends[at], stable[at]))) for at in ats}
        open_ = tuple((at.partition, stable[at], ends[at]) for at in ats if stable[at] < ends[at])
        return MapPlace(info.name, info.topic_id, bounds, open_, _index_of(clusters))


@contextmanager
def connected(
    flow: Flow,
    connect_timeout_ms: int | None = None,
    clusters: ControlPlane | None = None,
    *,
    source: bool = True,
) -> Iterator[ControlPlane]:
    """Yield clusters that are connected.

    Args:
        connect_timeout_ms: how long to wait for each cluster; None: as the flow file says.
        clusters: these, which stay open, instead of connections of its own.
        source: whether the source is needed, too.
    """
    if clusters is None:
        with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as made:
            _connect(made, source)
            yield made
    else:
        _connect(clusters, source)
        yield clusters


def _connect(clusters: ControlPlane, source: bool) -> None:
    if source:
        clusters.connect()
    else:
        clusters.target.connect()


def _index_of(clusters: ControlPlane) -> tuple[str, str] | None:
    name = names.offsets_index_topic(clusters.flow.name)
    info = clusters.target.topics((name,)).get(name)
    if info is not None and info.partitions != INDEX_PARTITIONS:
        why = f"it has {info.partitions} partitions, not {INDEX_PARTITIONS}"
        raise Incident("map_topic_unfit", why, topic=name)
    return (name, info.topic_id) if info is not None else None


def stable_offsets(flow: Flow, ats: Collection[Partition]) -> dict[Partition, int]:
    """Ask up to where sections count, see `offset_map.fold.reached`."""
    with connected(flow, source=False) as clusters:
        return {at: raised(it).reached for at, it in target_logs(clusters, ats, patient=True).items()}


class TargetLog(NamedTuple):
    """A partition of the target: up to where sections count, where its log ends, and where that begins."""

    reached: int
    end: int
    start: int


def target_logs(
    clusters: ControlPlane, ats: Collection[Partition], *, patient: bool
) -> dict[Partition, TargetLog | ReplicatorError]:
    """Ask clusters that are connected for the logs of target partitions, all at once; why one isn't known is its value.
    `patient`: as of `TopicQuestions.list_offsets`.

    The end is looked for behind the last stable offset: what is appended in between leaves that below the end, as if a
    transaction were open, and none that is open is overlooked.
    """
    answers = clusters.target.several_offset_answers(ats, (STABLE, LATEST, EARLIEST), patient=patient)
    found: dict[Partition, TargetLog | ReplicatorError] = {}
    for at, it in answers.items():
        if isinstance(it, ReplicatorError):
            found[at] = it
        else:
            stable, end, start = it
            found[at] = TargetLog(reached(stable, end), end, start)
    return found
