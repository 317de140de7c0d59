"""Requests to a classic group machine, and what comes out of it."""

from __future__ import annotations

import itertools
from dataclasses import replace

from kio.schema.errors import ErrorCode

from embedded_broker.state.group_types import (
    Cancel,
    Effect,
    GroupState,
    InitialDelayOver,
    JoinAnswer,
    JoinRequest,
    Reply,
    ScheduleEvent,
    Store,
    SyncAnswer,
    SyncRequest,
)
from embedded_broker.state.groups import Group

RANGE = (("range", b"r"),)
numbers = itertools.count()


def joining(member_id: str = "", *, instance_id: str | None = None, **changes: object) -> JoinRequest:
    number = next(numbers)
    request = JoinRequest(
        ticket=f"join {number}",
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=3_000,
        protocol_type="consumer",
        protocols=RANGE,
        must_know_member_id=True,
        can_skip_assignment=True,
        new_member_id=f"m{number}",
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def syncing(
    member_id: str, generation: int, assignment: dict[str, bytes] | None = None, **changes: object
) -> SyncRequest:
    request = SyncRequest(
        ticket=f"sync {next(numbers)}",
        member_id=member_id,
        instance_id=None,
        generation=generation,
        protocol_type="consumer",
        protocol_name="range",
        assignment=assignment or {},
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def joined(effects: list[Effect]) -> list[JoinAnswer]:
    return [e.answer for e in effects if isinstance(e, Reply) and isinstance(e.answer, JoinAnswer)]


def synced(effects: list[Effect]) -> list[SyncAnswer]:
    return [e.answer for e in effects if isinstance(e, Reply) and isinstance(e.answer, SyncAnswer)]


def timer(effects: list[Effect], key: str) -> ScheduleEvent | None:
    """The timer that is set under a key once all effects are carried out."""
    found: ScheduleEvent | None = None
    for effect in effects:
        if isinstance(effect, ScheduleEvent) and effect.key == key:
            found = effect
        if isinstance(effect, Cancel) and effect.key == key:
            found = None
    return found


def new_group(initial_delay_ms: int = 0) -> Group:
    return Group("g", initial_delay_ms, 300_000)


def member_of(group: Group, **changes: object) -> str:
    """Take a dynamic member through the first JoinGroup, which tells it its id."""
    (answer,) = joined(group.join(joining(**changes)))  # type: ignore[arg-type]
    assert answer.error_code is ErrorCode.member_id_required
    return answer.member_id


def stable(*instance_ids: str | None) -> tuple[Group, list[str]]:
    """A stable group; the first member leads. Members with an instance id are static."""
    group = new_group()
    members: list[str] = []
    for instance_id in instance_ids:
        if instance_id is None:
            member_id = member_of(group)
            group.join(joining(member_id))
        else:
            request = joining(instance_id=instance_id)
            member_id = request.new_member_id
            group.join(request)
        members.append(member_id)
    group.expired(InitialDelayOver(0, 0))
    settle(group, members)
    return group, members


def settle(group: Group, members: list[str]) -> None:
    """From completing to stable; each member is assigned its own name."""
    for member_id in reversed(members):
        instance_id = group.members[member_id].instance_id
        assignment = {each: each.encode() for each in members} if member_id == group.members.leader_id else {}
        for effect in group.sync(syncing(member_id, group.generation, assignment, instance_id=instance_id)):
            if isinstance(effect, Store) and effect.then is not None:
                group.stored(effect.then)
    assert group.state is GroupState.STABLE
