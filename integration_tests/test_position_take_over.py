"""`position set --take-over` on a flow that copies under load: done in one go, and by what stands behind the fence."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import AbstractContextManager

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.background import repeated
from integration_tests.harness.copying import PACE_S
from integration_tests.harness.processes import wait_until
from integration_tests.harness.two_topics import TwoTopics
from integration_tests.test_position_set import HELD, WHY, asked, planned, set_words, shown
from replicator.state.decisions import NotDecided, Objection

pytestmark = pytest.mark.tier("long", kafka="long")


def under_load(two: TwoTopics) -> AbstractContextManager[None]:
    """Write numbered values to the first topic for as long as the block runs."""
    writer, numbers = clients.producer(two.source), itertools.count()

    def put() -> None:
        clients.put(writer, two.first, *(b"load %d" % next(numbers) for _ in range(20)), partition=0, key=b"key")

    return repeated(put, PACE_S)


@pytest.mark.parametrize("options", [(), ("--shared",)], ids=["alone", "shared"])
def test_a_flow_that_copies_under_load_is_taken_over_and_set_in_one_go(
    make_copying: MakeCopying, options: tuple[str, ...]
) -> None:
    two = TwoTopics(make_copying(partitions=1))
    worker = two.flow.running("", *options)
    to = 40
    with under_load(two):
        wait_until(lambda: two.position(two.first).offset > 100, "it copies", worker.tail)
        generation = shown(two, two.first)["generation"]
        code, out, said = asked(two, *set_words(two, to, "--take-over", "--json"))
        assert code == 0, said
        done = json.loads(out)
        if not options:
            assert worker.wait_exit() == HELD, worker.tail()
            worker = two.flow.running()
    (row,) = done["partitions"]
    assert (done["generation"], row["after"], row["recorded_as"]) == (generation + 1, to, "adoption")
    assert row["copied_again"] == row["before"] - to
    source = clients.values(clients.read(two.source, two.first))
    two.wait_position(two.first, len(source))
    assert two.values(two.first) == [*source[: row["before"]], *source[to:]], "what was said, and once"
    (adopted,) = two.status()["adoptions"]
    assert (adopted["topic"], adopted["offset"], adopted["by"], adopted["why"]) == (two.first, to, "ann", WHY)
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)


def test_people_are_told_what_is_counted_behind_the_fence(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    worker = two.flow.running()
    words = [word for word in set_words(two, 40, "--take-over") if word not in ("--yes-i-mean", two.name)]
    with under_load(two):
        wait_until(lambda: two.position(two.first).offset > 100, "it copies", worker.tail)
        code, out, said = asked(two, *words, said=f"{two.name}\n")
    assert code == 0, said
    before, behind = out.split("Behind the fence:")
    assert "are counted from its position by then" in " ".join(before.split())
    (first,), (then,) = (re.findall(r": (\d+) → 40", text) for text in (before, behind))
    assert int(then) > int(first) > 100
    assert f"40 to {int(then) - 1} are copied again: up to {int(then) - 40} records" in behind
    assert worker.wait_exit() == HELD, worker.tail()


def test_what_others_have_changed_is_refused_although_the_flow_is_taken_over(make_copying: MakeCopying) -> None:
    """Another decision before the worker is fenced; what somebody else has written on the target behind the fence."""
    two = TwoTopics(make_copying(partitions=1, limits={"transaction_timeout_ms": 3_000}))
    worker = two.running(10)
    late = planned(two, 6, take_over=True)
    plan = late.plan()
    assert [it.moving for it in plan.values()] == [True]
    assert asked(two, *set_words(two, 8, "--take-over"))[0] == 0
    assert worker.wait_exit() == HELD, worker.tail()
    worker = two.flow.running()
    two.wait_position(two.first, 10)
    generation = shown(two, two.first)["generation"]
    with pytest.raises(NotDecided) as refused:
        late.apply(plan)
    assert refused.value.reason is Objection.OUTDATED
    two.assert_second_goes_on()
    assert shown(two, two.first)["generation"] == generation, "the worker was left alone"

    job = planned(two, 6, take_over=True)
    plan = job.plan()
    worker.suspend()
    clients.put(clients.producer(two.target), two.copy_of(two.first), b"foreign")
    with pytest.raises(NotDecided) as refused:
        job.apply(plan)
    assert (refused.value.reason, "has a record at offset" in refused.value.detail) == (Objection.OUTDATED, True)
    worker.resume()
    assert worker.wait_exit() == HELD, worker.tail()
    assert shown(two, two.first)["position"] == 10
    worker = two.flow.running()
    two.assert_second_goes_on()
    two.assert_stops(worker)
