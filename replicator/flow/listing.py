"""A flow's topics as they were listed, and where their partitions go. Pure values, made by `flow.setup`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from replicator.config import Flow
from replicator.config.routing import selects, target_topic
from replicator.flow.topic_rules import (
    MAX_MESSAGE_BYTES,
    ConfigChanges,
    ListedTopic,
    TopicDecision,
    changed_configs,
    decide_topic,
)
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import Incident, NotAllowed
from replicator.model.names import heartbeats_topic
from replicator.model.origins import Origins
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.state.claims import Claims
from replicator.state.control_topic import Control
from replicator.state.generation import failed_over_said
from replicator.state.origins import FoundOrigins

NOTHING: Mapping[str, int] = MappingProxyType({})


def wanted_topics(flow: Flow, selected: Iterable[str], known: Collection[str]) -> set[str]:
    """Return all selected topics, or under `new_topics: ignore` those that are `known`, as of `known_topics`."""
    if flow.new_topics == "copy":
        return set(selected)
    return {*known, heartbeats_topic(flow.name)}.intersection(selected)


def known_topics(first: Iterable[str], claims: Claims) -> set[str]:
    """Return the topics that aren't new to a flow: those of its first listing, `first`, and those that it has begun to
    copy. It may have copied new ones before it was told to ignore them."""
    return {*first, *(claim.source.topic for claim in claims.claims.values())}


def known_to(control: Control | None, claims: Claims | None) -> set[str] | None:
    """Return `known_topics` of a flow whose own topics were read; None where it has never run."""
    if control is None or not control.generations:
        return None
    return known_topics(control.first_listing(), claims or Claims({}, ()))


def copied_topics(flow: Flow, known: Collection[str] | None) -> Callable[[str], bool]:
    """Return what tells whether the flow copies a source topic: whether it selects it, and `wanted_topics` has it.
    `known` as of `known_topics`; None, where the flow has never run or that can't be read: all that it selects count.
    """
    if known is None or flow.new_topics == "copy":
        return partial(selects, flow)
    return {name for name in (*known, heartbeats_topic(flow.name)) if selects(flow, name)}.__contains__


@dataclass(frozen=True, slots=True)
class Listing:
    """The source topics that a flow selects.

    `topics`: those that may be seen. `denied`: why a topic, or its configs, may not. `conflicts`: what stops a topic
    whatever the target says: other flows, or a name that the target can't have. `missing`: an incident for each topic
    that the flow names and that isn't there. `origins`: where topics come from that other flows write;
    `origins_unknown` says why that isn't known of all, if it may be soon.
    """

    topics: Mapping[str, TopicInfo]
    denied: Mapping[str, NotAllowed] = field(default_factory=dict)
    conflicts: Mapping[str, Incident] = field(default_factory=dict)
    missing: tuple[Incident, ...] = ()
    origins: Mapping[str, Origins] = field(default_factory=dict)
    origins_unknown: str = ""

    @classmethod
    def of(
        cls, found: Mapping[str, ListedTopic], conflicts: Mapping[str, Incident], missing: Iterable[Incident]
    ) -> Listing:
        """Make a listing as the source told it."""
        topics = {name: it.info for name, it in found.items() if it.info is not None}
        denied = {name: it.denied for name, it in found.items() if it.denied is not None}
        return cls(topics, denied, conflicts, tuple(missing))

    @property
    def partitions(self) -> dict[str, int]:
        """Partition counts by topic."""
        return {name: info.partitions for name, info in self.topics.items()}

    @property
    def hidden(self) -> dict[str, NotAllowed]:
        """Topics of which not even the partitions may be seen."""
        return {name: denied for name, denied in self.denied.items() if name not in self.topics}

    def only(self, names: Collection[str]) -> Listing:
        """Return the same listing without any other topic."""
        return replace(
            self,
            topics={name: info for name, info in self.topics.items() if name in names},
            denied={name: denied for name, denied in self.denied.items() if name in names},
        )

    def wanted(self, flow: Flow, known: Collection[str]) -> Listing:
        """Return the same listing with `wanted_topics` alone."""
        return self.only(wanted_topics(flow, self.topics.keys() | self.denied.keys(), known))

    def coming_from(self, found: FoundOrigins, conflicts: Mapping[str, Incident]) -> Listing:
        """Return the same listing with where its topics come from, and what of that is a conflict."""
        unknown = "" if found.passing is None else f"where it comes from can't be asked: {found.passing}"
        return replace(self, conflicts={**conflicts, **self.conflicts}, origins=found.origins, origins_unknown=unknown)


@dataclass(frozen=True, slots=True)
class Routing:
    """Where all partitions of a flow go. `message_bytes`: max.message.bytes by target topic, where it is known."""

    routes: Mapping[Partition, Route] = field(default_factory=dict)
    message_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def topic_partitions(self) -> Mapping[str, int]:
        """How many partitions each source topic has, by its name."""
        return Counter(at.topic for at in self.routes)

    def sizes(self, routes: Iterable[Route]) -> list[int]:
        """Return max.message.bytes of the target topics to which these routes copy, ascending."""
        copying = {route.target.topic for route in routes if route.stopped is None and not route.waiting}
        return sorted(self.message_bytes[name] for name in copying if name in self.message_bytes)


def message_bytes(targets: Mapping[str, ListedTopic]) -> dict[str, int]:
    """Return max.message.bytes of target topics, where it is known."""
    return {
        name: int(it.info.configs[MAX_MESSAGE_BYTES])
        for name, it in targets.items()
        if it.info is not None and MAX_MESSAGE_BYTES in it.info.configs
    }


def unknown_source_topic(flow: Flow, name: str) -> Incident:
    """Make the incident of a topic that the flow names and that isn't there."""
    why = f"cluster {flow.source.name!r} has no topic {name!r}"
    return Incident("unknown_source_topic", why, topic=name)


def decide_topics(
    flow: Flow,
    listing: Listing,
    targets: Mapping[str, ListedTopic],
    claims: Claims,
    unclaimed: Mapping[str, str],
    failed_over: Mapping[str, int] = NOTHING,
) -> dict[str, TopicDecision]:
    """Decide what becomes of each topic of a listing, by source topic. Pure.

    Args:
        targets: topics of the target by name; those of topics in conflict may be left out.
        unclaimed: see `unclaimed.unclaimed`.
        failed_over: source topics whose targets are left as they are, see `Generation.failed_over`.
    """
    decisions: dict[str, TopicDecision] = {}
    for name, info in listing.topics.items():
        to = target_topic(flow, name)
        if name in failed_over:
            decisions[name] = TopicDecision(waiting=failed_over_said(name, failed_over[name]))
            continue
        denied, conflict = listing.denied.get(name), listing.conflicts.get(name)
        theirs = claims.of_topic(to)
        if listing.origins_unknown and not theirs and conflict is None:  # nothing of it is copied yet
            decisions[name] = TopicDecision(waiting=listing.origins_unknown)
            continue
        target = targets.get(to, ListedTopic())
        decisions[name] = decide_topic(flow, info, denied, target, theirs, conflict, unclaimed.get(to))
    return decisions


def config_changes(
    flow: Flow, listing: Listing, targets: Mapping[str, ListedTopic], failed_over: Collection[str] = ()
) -> list[ConfigChanges]:
    """Return what is to be set on existing target topics of a listing; of topics that may be seen, that no conflict
    stops, and that were not failed over."""
    found: list[ConfigChanges] = []
    for name, info in listing.topics.items():
        target = targets.get(target_topic(flow, name), ListedTopic())
        if (
            name in failed_over
            or name in listing.conflicts
            or name in listing.denied
            or target.info is None
            or target.denied is not None
        ):
            continue
        changes = changed_configs(flow, info, target.info)
        found += [changes] if changes is not None else []
    return found
