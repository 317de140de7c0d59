"""What becomes of consumer groups (`groups` of a flow), for `inspect.planning`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from replicator.config import Flow, routing
from replicator.model.counting import named
from replicator.model.errors import ReplicatorError
from replicator.wire.group_questions import GroupQuestions
from replicator.wire.group_requests import ListedGroup
from replicator.wire.share_groups import SHARE

ASK_S = 5.0
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group of the source that the flow syncs. `action`: sync, or why it isn't moved now: `has_members` at the
    target, `members_at_source`: it is a share group that has some there. `kind`: consumer or share."""

    group: str
    target_group: str
    action: str
    kind: str = "consumer"


@dataclass(frozen=True, slots=True)
class GroupsPlan:
    """All of them. `denied`: why some aren't known."""

    groups: list[GroupPlan]
    warnings: list[str]
    denied: list[ReplicatorError]


def plan_groups(flow: Flow) -> GroupsPlan:
    """Ask both clusters for groups. Raises ReplicatorError where one of them doesn't answer."""
    found, denied = list[Mapping[str, ListedGroup]](), list[ReplicatorError]()
    for cluster in (flow.source, flow.target):
        with closing(GroupQuestions(cluster, f"eos-replicate.{flow.name}.plan")) as questions:
            listing = questions.listing(ASK_S)
            found.append(listing.groups)
            denied += listing.unanswered
    here, there = found
    groups = [_planned(flow, name, it, there) for name, it in sorted(here.items()) if flow.groups.selects(name)]
    return GroupsPlan(groups, list(group_warnings(flow, groups)), denied)


def _planned(flow: Flow, name: str, it: ListedGroup, there: Mapping[str, ListedGroup]) -> GroupPlan:
    target = routing.target_group(flow, name)
    known = there.get(target)
    kind = SHARE if it.kind == SHARE else "consumer"
    if kind == SHARE and it.has_members:
        return GroupPlan(name, target, "members_at_source", kind)
    return GroupPlan(name, target, "has_members" if known is not None and known.has_members else "sync", kind)


def group_warnings(flow: Flow, groups: list[GroupPlan]) -> Iterator[str]:
    """Say what the owner of a flow with `groups` should know. Pure."""
    renamed = routing.target_topic(flow, "{topic}")
    if renamed != "{topic}":
        yield (
            f"topics have other names at the target ({renamed}): consumers of groups that go on there must subscribe "
            "to those"
        )
    if not groups:
        yield f"the source has no consumer group now that groups.include selects: {', '.join(flow.groups.include)}"
    for action, said in (
        ("has_members", "have members at the target, and are not moved while they do"),
        ("members_at_source", "are share groups with members at the source, and are not moved while they have some"),
    ):
        found = [it.group for it in groups if it.action == action]
        if found:
            yield f"groups {named(found, most=NAMED_MAX)} {said}"
