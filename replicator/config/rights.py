"""What a flow's users must be allowed to do on both clusters, as Kafka's ACLs name it. Pure.

docs/operate/rights.md shows `NEEDED`; a test compares them. `rights_of` says the same of one flow, with its names.
Patterns of ACLs are literal or prefixed (KIP-290): a pattern of topics that a flow selects becomes the text that all
names which it matches begin with.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from replicator.config.models import Flow
from replicator.config.routing import target_group, target_topic
from replicator.coupling.evidence import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replicator.model import names

SPECIAL = frozenset(".^$*+?{}[]\\|()")
"""Characters of a regular expression that don't stand for themselves."""
_TOPIC_MARK = "\x00"


class GrantedBy(StrEnum):
    """Which cluster grants it."""

    SOURCE = "source"
    TARGET = "target"


class Resource(StrEnum):
    """What it is granted on, by the option of kafka-acls."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


class On(StrEnum):
    """Which names of a flow a right is for."""

    SELECTED = "topics of the flow"
    OTHER_FLOWS = "topics with the prefix `__eos.`"
    COPIES = "the flow's target topics"
    STATE = "topics with the prefix `__eos.<flow>.`"
    MAP = "topics with the prefix `__eos.<flow>.offsets`"
    POSITIONS = "group `eos-replicate.<flow>`"
    WORKERS = "group `eos-replicate.<flow>.workers`"
    GROUPS = "groups of `groups.include`"
    TARGET_GROUPS = "those groups, by their names at the target"
    DELETED_GROUPS = "the same groups, with `groups.deleted: delete`"
    ENDS = "group `eos-replicate.<flow>.ends`"
    TRANSACTIONS = "transactional ids with the prefix `eos.<flow>.`"
    OFFSETS_LOG = "topic `__consumer_offsets`"
    TRANSACTIONS_LOG = "topic `__transaction_state`"
    PRODUCERS = "all transactional ids"
    HEARTBEATS = "topic `eos-heartbeat.<flow>`"
    HEARTBEATS_COPY = "topic `eos-heartbeat.<flow>.copy`"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Needed:
    """A row of docs/operate/rights.md. Without what is `optional` the flow runs, and says what it can't do."""

    side: GrantedBy
    on: On
    operations: tuple[str, ...]
    needed_for: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Right:
    """Operations on one resource. `name` is a prefix where it is `prefixed`; the cluster has no name."""

    side: GrantedBy
    resource: Resource
    name: str
    prefixed: bool
    operations: tuple[str, ...]
    needed_for: str
    optional: bool


NEEDED = (
    Needed(GrantedBy.SOURCE, On.SELECTED, ("Describe", "DescribeConfigs", "Read"), "listing and copying"),
    Needed(
        GrantedBy.SOURCE,
        On.OTHER_FLOWS,
        ("Describe", "Read"),
        "without it circles over flows of other files aren't seen, and the log says so",
        optional=True,
    ),
    Needed(
        GrantedBy.SOURCE,
        On.HEARTBEATS,
        ("Describe", "DescribeConfigs", "Read", "Write", "Create"),
        "heartbeat records (`heartbeat`); Create where the topic doesn't exist",
        optional=True,
    ),
    Needed(GrantedBy.SOURCE, On.GROUPS, ("Describe",), "reading offsets of consumer groups (`groups`)", optional=True),
    Needed(
        GrantedBy.SOURCE,
        On.OFFSETS_LOG,
        ("Describe", "Read"),
        "finding topics that read-process-write loops write to (`groups.hold_with`), and what they read (`coupled`)",
        optional=True,
    ),
    Needed(
        GrantedBy.SOURCE,
        On.TRANSACTIONS_LOG,
        ("Describe", "Read"),
        "a failover names transactions that are half copied (`groups`); `coupled` sees transactions of the past, too",
        optional=True,
    ),
    Needed(
        GrantedBy.SOURCE,
        On.PRODUCERS,
        ("Describe",),
        "`coupled` names producers, and sees transactions that are open",
        optional=True,
    ),
    Needed(GrantedBy.SOURCE, On.CLUSTER, ("Describe",), "listing ACLs (`sync_acls`)", optional=True),
    Needed(
        GrantedBy.TARGET,
        On.COPIES,
        ("Describe", "DescribeConfigs", "Read", "Write"),
        "copying; Read to commit positions for them",
    ),
    Needed(GrantedBy.TARGET, On.COPIES, ("Create",), "creating those that don't exist", optional=True),
    Needed(GrantedBy.TARGET, On.COPIES, ("Alter",), "adding partitions (`new_partitions: copy`)", optional=True),
    Needed(
        GrantedBy.TARGET, On.COPIES, ("AlterConfigs",), "setting changed configs (`topic_configs.sync`)", optional=True
    ),
    Needed(
        GrantedBy.TARGET,
        On.HEARTBEATS_COPY,
        ("Describe", "DescribeConfigs", "Read", "Write", "Create"),
        "copies of heartbeat records (`heartbeat`)",
        optional=True,
    ),
    Needed(
        GrantedBy.TARGET,
        On.STATE,
        ("Describe", "DescribeConfigs", "Read", "Write", "Create", "Alter"),
        "what the flow keeps: generations, claims, decisions, the offset map, notes of consumer groups, verdicts of "
        "failovers, records set aside; and the topic by which workers share its lanes. Create at the first start and "
        "where one is needed first, Alter when `lanes` grows",
    ),
    Needed(
        GrantedBy.TARGET,
        On.MAP,
        ("Delete",),
        "deleting blocks of the offset map that are in its index (`consolidate_map`)",
        optional=True,
    ),
    Needed(GrantedBy.TARGET, On.POSITIONS, ("Describe", "Read"), "positions"),
    Needed(
        GrantedBy.TARGET,
        On.WORKERS,
        ("Describe", "Read"),
        "sharing the flow's lanes among its workers; `run --standalone` doesn't need it, `rebuild-control` does: it "
        "asks whether any are left",
    ),
    Needed(
        GrantedBy.TARGET,
        On.OFFSETS_LOG,
        ("Describe", "DescribeConfigs"),
        "seeing whether it removes positions (`plan`)",
        optional=True,
    ),
    Needed(
        GrantedBy.TARGET,
        On.TARGET_GROUPS,
        ("Describe", "Read"),
        "committing offsets of consumer groups (`groups`)",
        optional=True,
    ),
    Needed(
        GrantedBy.TARGET,
        On.DELETED_GROUPS,
        ("Delete",),
        "deleting their offsets in the flow's target topics, on which it needs Read, when they were deleted at the "
        "source",
        optional=True,
    ),
    Needed(
        GrantedBy.TARGET,
        On.ENDS,
        ("Describe", "Read"),
        "noting where the source's partitions end, for a failover (`groups`)",
        optional=True,
    ),
    Needed(GrantedBy.TARGET, On.TRANSACTIONS, ("Describe", "Write"), "transactions"),
    Needed(
        GrantedBy.TARGET,
        On.CLUSTER,
        ("DescribeConfigs",),
        "`plan` checks the brokers' limits, a waiting partition says when its position expires",
        optional=True,
    ),
    Needed(
        GrantedBy.TARGET,
        On.CLUSTER,
        ("Alter",),
        "to end a transaction of the flow's own producer that the brokers left open; without it its partition stops "
        "(`target_transaction_open`), and the log says what to type",
        optional=True,
    ),
    Needed(GrantedBy.TARGET, On.CLUSTER, ("Describe", "Alter"), "creating ACLs (`sync_acls`)", optional=True),
)


def rights_of(flow: Flow) -> list[Right]:
    """Return all rights that the flow's users need, on both clusters."""
    return [
        Right(needed.side, resource, name, prefixed, needed.operations, needed.needed_for, needed.optional)
        for needed in NEEDED
        for resource, name, prefixed in _resources(flow, needed.on)
    ]


def _resources(flow: Flow, on: On) -> Iterator[tuple[Resource, str, bool]]:
    if on is On.SELECTED:
        yield from ((Resource.TOPIC, *selected) for selected in _selected(flow))
    elif on is On.COPIES:
        for name, prefixed in _selected(flow):
            copy = target_topic(flow, _TOPIC_MARK).partition(_TOPIC_MARK)[0] + name if prefixed else ""
            yield Resource.TOPIC, copy or target_topic(flow, name), prefixed
    elif on in (On.HEARTBEATS, On.HEARTBEATS_COPY):
        if flow.heartbeat:
            of = names.heartbeats_topic if on is On.HEARTBEATS else names.heartbeats_copy
            yield Resource.TOPIC, of(flow.name), False
    elif on is On.OTHER_FLOWS:
        yield Resource.TOPIC, names.STATE_PREFIX, True
    elif on in (On.OFFSETS_LOG, On.TRANSACTIONS_LOG):
        yield Resource.TOPIC, OFFSETS_TOPIC if on is On.OFFSETS_LOG else TRANSACTIONS_TOPIC, False
    elif on is On.PRODUCERS:
        yield Resource.TRANSACTIONAL_ID, "", True
    elif on is On.STATE:
        yield Resource.TOPIC, names.state_prefix(flow.name), True
    elif on is On.MAP:
        yield Resource.TOPIC, names.offsets_topic(flow.name), True
    elif on is On.POSITIONS:
        yield Resource.GROUP, names.position_group(flow.name), False
    elif on is On.WORKERS:
        yield Resource.GROUP, names.workers_group(flow.name), False
    elif on in (On.GROUPS, On.TARGET_GROUPS):
        yield from ((Resource.GROUP, *selected) for selected in _groups(flow, at_target=on is On.TARGET_GROUPS))
    elif on is On.DELETED_GROUPS:
        if flow.groups.deleted == "delete":
            yield from ((Resource.GROUP, *selected) for selected in _groups(flow, at_target=True))
    elif on is On.ENDS:
        if flow.groups.synced:
            yield Resource.GROUP, names.ends_group(flow.name), False
    elif on is On.TRANSACTIONS:
        yield Resource.TRANSACTIONAL_ID, names.transactional_prefix(flow.name), True
    else:
        yield Resource.CLUSTER, "", False


def _groups(flow: Flow, *, at_target: bool) -> list[tuple[str, bool]]:
    """Return names and prefixes of the consumer groups that the flow syncs, as of `_selected`."""
    literal = {(name, False) for name in flow.groups.include if not name.startswith("^")}
    patterns = {(literal_prefix(name), True) for name in flow.groups.include if name.startswith("^")}
    if not at_target:
        return sorted(literal | patterns)
    before, _, behind = target_group(flow, _TOPIC_MARK).partition(_TOPIC_MARK)
    return sorted({(f"{before}{name}{'' if prefixed else behind}", prefixed) for name, prefixed in literal | patterns})


def _selected(flow: Flow) -> list[tuple[str, bool]]:
    """Return names, and prefixes of what patterns match; what a shorter prefix covers is left out. Not the registry's
    topic, whose copy has another prefix."""
    literal = {(topic, False) for topic in flow.topics if not topic.startswith("^")}
    prefixes = {literal_prefix(topic) for topic in flow.topics if topic.startswith("^")}
    shortest = {each for each in prefixes if not any(each != it and each.startswith(it) for it in prefixes)}
    uncovered = {item for item in literal if not any(item[0].startswith(prefix) for prefix in shortest)}
    own = {(topic, False) for topic in flow.schema_registry.topics}
    return sorted(uncovered | own | {(prefix, True) for prefix in shortest})


def literal_prefix(pattern: str) -> str:
    r"""Return what all names begin with that the pattern matches: `^orders\.eu.*` gives `orders.eu`. Empty: any."""
    if "|" in pattern:
        return ""  # which part of it is optional would have to be parsed
    found, rest = "", pattern.removeprefix("^")
    while rest:
        escaped = re.match(r"\\([^\w\s])", rest)
        if escaped:
            found, rest = found + escaped[1], rest[2:]
        elif rest[0] in SPECIAL:
            # What may repeat or be missing isn't part of it: the character before *, ? and {.
            return found[:-1] if rest[0] in "*?{" else found
        else:
            found, rest = found + rest[0], rest[1:]
    return found


def kafka_acls(rights: Iterable[Right], bootstrap: str, principal: str) -> Iterator[str]:
    """Yield the commands that grant them, for kafka-acls of Apache Kafka; rights on one resource are one command."""
    for (resource, name, prefixed), operations in _by_resource(rights).items():
        words = ["kafka-acls", "--bootstrap-server", bootstrap, "--add", "--allow-principal", principal]
        for operation in operations:
            words += ["--operation", operation]
        if resource is Resource.CLUSTER:
            words.append("--cluster")
        elif prefixed and not name:
            words += [f"--{resource}", "*"]
        else:
            words += [f"--{resource}", name, "--resource-pattern-type", "prefixed" if prefixed else "literal"]
        yield shlex.join(words)


def _by_resource(rights: Iterable[Right]) -> dict[tuple[Resource, str, bool], list[str]]:
    found: dict[tuple[Resource, str, bool], list[str]] = {}
    for right in rights:
        operations = found.setdefault((right.resource, right.name, right.prefixed), [])
        operations += [each for each in right.operations if each not in operations]
    return found
