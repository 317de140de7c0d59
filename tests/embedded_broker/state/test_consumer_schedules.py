"""Any order of heartbeats, lost answers, crashes, expiries and topic changes: nobody shares, and all ends well."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from embedded_broker.state.consumer_types import ConsumerGroupState, SessionExpired
from tests.budget import budget
from tests.embedded_broker.state.consumers import Client, Log, Topics, settle

NAMES = ["a", "b", "c"]
steps = st.tuples(
    st.sampled_from(["beat", "beat", "beat", "beat", "revoke", "take", "lose", "leave", "expire", "restart", "grow"]),
    st.sampled_from(NAMES),
)


@pytest.mark.tier("default")
@settings(max_examples=budget(200, 5_000), deadline=None)
@example([("beat", "b"), ("beat", "a"), ("lose", "b"), ("beat", "a"), ("take", "a"), ("take", "b")], 1, "range")
@given(st.lists(steps, max_size=60), st.integers(1, 5), st.sampled_from(["uniform", "range"]))
def test_no_partition_has_two_holders_and_in_the_end_all_have_one(
    schedule: list[tuple[str, str]], count: int, assignor: str
) -> None:
    topics = Topics(t=count)
    log = Log(topics)
    clients = {name: Client(log, name, "t", assignor=assignor) for name in NAMES}
    for step, name in schedule:
        client = clients[name]
        if step in ("beat", "lose"):
            client.beat(lose_answer=step == "lose")
        elif step == "leave":
            if client.beat(member_epoch=-1).error_code is ErrorCode.none:
                clients[name] = Client(log, name, "t", assignor=assignor)
        elif step == "expire":
            watch = log.timers.get(f"session {name}")
            if watch is not None:
                # The client's own session is over too, so it consumes no more.
                client.holds = client.told = frozenset()
                log.expire(watch.event)
        elif step == "restart":
            log.restart()
        elif step == "grow":
            count += 1
            topics.set("t", count)
        else:
            getattr(client, step)()
        held = [partition for each in clients.values() for partition in each.holds]
        assert len(held) == len(set(held)), f"after {step} {name}"
        rebuilt = Log(topics)
        rebuilt.written = log.written
        rebuilt.restart()
        assert set(rebuilt.group.members.records()) == set(log.group.members.records())
    members = list(clients.values())
    for each in members:
        # Whoever has missed two epochs is fenced until its former session is over, as in Kafka.
        if each.turn().error_code is ErrorCode.fenced_member_epoch:
            log.expire(SessionExpired(each.member_id))
    settle(*members)
    assert log.group.state is ConsumerGroupState.STABLE
    assert frozenset().union(*(each.holds for each in members)) == topics.everything()
    shares = [len(each.holds) for each in members]
    assert max(shares) - min(shares) <= 1
