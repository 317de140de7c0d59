"""Which topics a flow copies, their names at the target, and whether flows get into each other's way.

Pure. Invariant 3: one target topic belongs to one source topic of one flow, because positions are kept as
offsets of the *target's* topic and partition; two sources would share a key. And no record may come back to
where it was read, because each round would write it again under exactly-once rules.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from replicator.config.models import Cluster, Config, Flow
from replicator.config.patterns import filled, matches
from replicator.model.errors import Incident
from replicator.model.names import HEARTBEATS_PREFIX, INTERNAL_PREFIX, heartbeats_copy, heartbeats_topic

TOPIC_BYTES_MAX = 249
_SAMPLES = ("orders", "a", "payments.eu", "x-1")
_MARK = "\0"  # in no topic's name, and in no group's
_COPIES_MAX = 1_000
"""Copies of copies of one topic that are looked at: more come from flows that feed one another in all ways."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why `flow` must not run as it is. `topic` is a source topic that shows it; `incident` is the name of what stops
    that topic."""

    flow: str
    topic: str
    message: str
    incident: str = "flows_in_conflict"


def selects(flow: Flow, topic: str) -> bool:
    """Return whether the flow copies the source topic of this name. Internal topics never; of those with heartbeats its
    own, whatever its patterns say, if it has any: no copy of one is ever copied on, so they go in no circle."""
    if topic.startswith(INTERNAL_PREFIX):
        return False
    if topic.startswith(HEARTBEATS_PREFIX):
        return flow.heartbeat > 0 and topic == heartbeats_topic(flow.name)
    if topic in flow.schema_registry.topics:
        return True
    return matches(flow.topics, topic) and not matches(flow.exclude, topic)


def taken_out(flow: Flow, topics: Iterable[str]) -> tuple[str, ...]:
    """Return those of these source topics that the flow file doesn't have the flow copy, sorted."""
    return tuple(sorted(topic for topic in topics if not selects(flow, topic)))


def target_topic(flow: Flow, topic: str) -> str:
    """Return the name at the target of a source topic."""
    if topic == heartbeats_topic(flow.name):
        return heartbeats_copy(flow.name)
    if topic in flow.schema_registry.topics:
        return topic  # where the target's registry looks for it
    values = {"source": flow.source.name, "target": flow.target.name, "flow": flow.name, "topic": topic}
    return filled(flow.rename, values)


def source_topic(flow: Flow, target: str) -> str | None:
    """Return the name at the source of a target topic; None where the flow gives no topic this name."""
    for topic in (heartbeats_topic(flow.name), *flow.schema_registry.topics):
        if target_topic(flow, topic) == target:
            return topic
    return _before_rename(partial(target_topic, flow), target)


def target_group(flow: Flow, group: str) -> str:
    """Return the name at the target of a consumer group."""
    values = {"source": flow.source.name, "target": flow.target.name, "flow": flow.name, "group": group}
    return filled(flow.groups.rename, values)


def source_group(flow: Flow, target: str) -> str | None:
    """Return the name at the source of a group of the target; None where the flow gives no group this name."""
    return _before_rename(partial(target_group, flow), target)


def _before_rename(renamed: Callable[[str], str], target: str) -> str | None:
    before, mark, behind = renamed(_MARK).partition(_MARK)
    name = target[len(before) : len(target) - len(behind)] if mark else ""
    return name if name and renamed(name) == target else None


def literals(flow: Flow) -> tuple[str, ...]:
    """Return the topics that the flow names without a pattern: each of them must exist."""
    named = (item for item in flow.topics if not item.startswith("^"))
    return tuple(dict.fromkeys((*named, *flow.schema_registry.topics)))


def same_cluster(one: Cluster, other: Cluster) -> bool:
    """Return whether two names surely mean one cluster. Different addresses may too: the caller that is connected
    compares cluster ids."""
    return one.name == other.name or bool(set(one.bootstrap_servers) & set(other.bootstrap_servers))


def conflicts(
    flows: Iterable[Flow],
    topics: Mapping[str, Iterable[str]] | None = None,
    identity: Mapping[str, str] | None = None,
) -> list[Conflict]:
    """Return everything that forbids running these flows side by side.

    Args:
        flows: all flows of the file, also those that are not run now.
        topics: topic names by cluster name, as far as known. Without it, the names that the file gives and a
            few samples are tried, so patterns are checked as far as possible without a connection.
        identity: cluster id by cluster name, where known; names with one id are one cluster.
    """
    return _one_per_flow(_all_conflicts(list(flows), topics or {}, identity or {}))


def topic_conflicts(
    config: Config, flow: str, topics: Mapping[str, Iterable[str]], identity: Mapping[str, str]
) -> dict[str, Incident]:
    """Say why `flow` must not copy single source topics, by topic: arguments as of `conflicts`. Of two flows that would
    write one target topic, the later in the file yields."""
    found: dict[str, Incident] = {}
    for conflict in _all_conflicts(list(config.flows.values()), topics, identity):
        if conflict.flow == flow:
            found.setdefault(conflict.topic, Incident(conflict.incident, conflict.message, topic=conflict.topic))
    return found


def _all_conflicts(
    flows: list[Flow], topics: Mapping[str, Iterable[str]], identity: Mapping[str, str]
) -> list[Conflict]:
    found: list[Conflict] = []
    place = _places(flows, identity)
    chains = _Chains(flows, place)
    names = _names(flows, place, topics, chains)
    origin: dict[tuple[str, str], tuple[str, str]] = {}
    for flow in flows:
        for topic in sorted(name for name in names[place[flow.source.name]] if selects(flow, name)):
            found.extend(_name_faults(flow, topic))
            found.extend(_shared_target(flow, topic, place, origin))
            if endless := chains.endless(flow, topic):
                found.append(Conflict(flow.name, topic, endless))
    return found


def _places(flows: list[Flow], identity: Mapping[str, str]) -> dict[str, str]:
    """Map each cluster's name to that of the first cluster that is the same one."""
    clusters = {cluster.name: cluster for flow in flows for cluster in (flow.source, flow.target)}
    place: dict[str, str] = {}
    for name, cluster in clusters.items():
        for earlier in place:
            ids = identity.get(name), identity.get(earlier)
            if same_cluster(cluster, clusters[earlier]) or (ids[0] is not None and ids[0] == ids[1]):
                place[name] = place[earlier]
                break
        else:
            place[name] = name
    return place


class _Chains:
    """Follows topics through all flows: copies, copies of those, and so on.

    A topic that comes back to its flow would be copied without an end. Such a topic isn't copied by that flow, so a
    chain that is passes each flow once, and what it makes is finite.
    """

    def __init__(self, flows: list[Flow], place: Mapping[str, str]) -> None:
        self._flows, self._place = flows, place
        self._known: dict[tuple[str, str], str] = {}

    def endless(self, flow: Flow, topic: str) -> str:
        """Say why copying this topic would never end; empty if it does."""
        key = (flow.name, topic)
        if key not in self._known:
            self._known[key] = self._followed(flow, topic)
        return self._known[key]

    def _followed(self, flow: Flow, topic: str) -> str:
        start = (self._place[flow.target.name], target_topic(flow, topic))
        ahead: deque[tuple[str, str, tuple[str, ...]]] = deque([(*start, (flow.name,))])
        seen = {start}
        while ahead:
            where, name, path = ahead.popleft()  # the shortest way back first
            for follower in self._flows:
                if self._place[follower.source.name] != where or not selects(follower, name):
                    continue
                if follower.name == flow.name:
                    return _loop_message(flow, topic, name, path)
                step = (self._place[follower.target.name], target_topic(follower, name))
                if step in seen or follower.name in path:
                    continue
                if len(seen) == _COPIES_MAX:
                    return (
                        f"its copies would be copied on without an end: {topic!r} becomes more than {_COPIES_MAX:,} "
                        f"topics, such as {name!r} ({' → '.join(path)}); exclude names or rename"
                    )
                seen.add(step)
                ahead.append((*step, (*path, follower.name)))
        return ""


def _names(
    flows: list[Flow], place: Mapping[str, str], topics: Mapping[str, Iterable[str]], chains: _Chains
) -> dict[str, set[str]]:
    """Return topic names by cluster: those known or else samples, and those that flows will write there.

    A chain without a loop passes each flow once, so as many rounds as flows find all names.
    """
    samples = {name for flow in flows for name in literals(flow)} | set(_SAMPLES)
    names: dict[str, set[str]] = {}
    for cluster, here in place.items():
        if cluster in topics:
            names.setdefault(here, set()).update(topics[cluster])
    for here in place.values():
        names.setdefault(here, set(samples))
    for _ in flows:
        for flow in flows:
            read = [name for name in names[place[flow.source.name]] if selects(flow, name)]
            written = {target_topic(flow, name) for name in read if not chains.endless(flow, name)}
            names[place[flow.target.name]] |= {name for name in written if len(name) <= TOPIC_BYTES_MAX}
    return names


def name_fault(flow: Flow, topic: str) -> str:
    """Say why the target can't have a topic of the name that the flow gives to this source topic; empty if it can."""
    name = target_topic(flow, topic)
    if name.startswith(INTERNAL_PREFIX):
        return f"rename makes {name!r} of {topic!r}: names with __ are internal"
    if len(name) > TOPIC_BYTES_MAX:
        return f"rename makes a name of {len(name)} characters of {topic!r}; Kafka takes {TOPIC_BYTES_MAX}"
    return ""


def _name_faults(flow: Flow, topic: str) -> Iterator[Conflict]:
    fault = name_fault(flow, topic)
    if fault:
        yield Conflict(flow.name, topic, fault, "target_topic_name_invalid")


def _shared_target(
    flow: Flow, topic: str, place: Mapping[str, str], origin: dict[tuple[str, str], tuple[str, str]]
) -> Iterator[Conflict]:
    name = target_topic(flow, topic)
    mine = (flow.name, topic)
    first = origin.setdefault((place[flow.target.name], name), mine)
    if first == mine:
        return
    if first[0] == flow.name:
        why = f"would write both {first[1]!r} and {topic!r} to {name!r}; put {{topic}} into rename"
    else:
        why = f"would write {name!r} on {flow.target.name!r}, as flow {first[0]!r} would (from {first[1]!r})"
    yield Conflict(flow.name, topic, why)


def _loop_message(flow: Flow, topic: str, name: str, path: tuple[str, ...]) -> str:
    way = " → ".join((*path, flow.name))
    return f"would feed itself: {topic!r} comes back as {name!r} ({way}); exclude that name or rename"


def _one_per_flow(found: list[Conflict]) -> list[Conflict]:
    """Keep the first conflict of each kind of a flow: samples may show one fault many times."""
    kept: dict[tuple[str, str], Conflict] = {}
    for item in found:
        kept.setdefault((item.flow, re.sub(r"'[^']*'", "", item.message)), item)
    return list(kept.values())
