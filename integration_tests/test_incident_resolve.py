"""`incident resolve`, provoked and typed: the flow goes on, runs or not, and what was left out is on record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.two_topics import TwoTopics, numbered

REFUSED = 1
WHY = "nobody reads them"


def command(path: Path, *words: str) -> list[str]:
    """A command about incidents."""
    return [sys.executable, "-m", "cli.main", "incident", *words, "-c", str(path)]


def asked(path: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code of such a command, its JSON, if it has any, and what it says on stderr."""
    done = subprocess.run(command(path, *words, "--json"), capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def listed(path: Path) -> list[dict[str, Any]]:
    """The open incidents."""
    return list(asked(path, "list")[1]["incidents"])


def open_id(path: Path, name: str, worker: Replicator) -> str:
    """The id of the one that is open, once a lane has written it down."""

    def found() -> list[str]:
        return [it["id"] for it in listed(path) if it["name"] == name and it["commands"]]

    wait_until(lambda: bool(found()), f"{name} is listed", worker.tail)
    (id_,) = found()
    return str(id_)


def lose(two: TwoTopics, copied: int, below: int) -> None:
    """Write up to offset 20 behind what was copied, and delete what stands below an offset."""
    if clients.stable_end(two.source, two.first, 0) < 20:
        two.put(two.first, numbered("unread", 20 - copied))
    clients.delete_records(two.source, two.first, 0, below)


@pytest.mark.tier("full")
def test_what_the_source_has_lost_is_skipped_while_the_flow_runs_and_while_it_does_not(
    make_copying: MakeCopying,
) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    worker = two.running(10)
    worker.suspend()
    clients.outwait_fetches(two.source, two.first)  # else it may have been sent what is written now
    lose(two, 10, 15)
    worker.resume()
    id_ = open_id(path, "source_records_gone", worker)
    code, shown, _ = asked(path, "show", id_)
    assert (code, shown["commands"], shown["position"]) == (0, ["--retry", "--skip"], 10)
    assert asked(path, "resolve", id_, "--skip", "--why", WHY, "--by", "ann")[:2][0] == 0
    two.wait_copied(two.first, b"unread 9")
    assert two.values(two.first) == [*numbered("old", 10), *numbered("unread", 10)[5:]]
    assert listed(path) == []
    code, _, said = asked(path, "resolve", id_, "--retry")
    assert (code, "already_decided" in said, WHY in said, "(skipped)" in said) == (REFUSED, True, True, True)
    (gap,) = two.status()["signed_gaps"]
    assert (gap["topic"], gap["first"], gap["end"], gap["by"], gap["why"]) == (two.first, 10, 15, "ann", WHY)
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)

    two.put(two.first, numbered("later", 10))
    clients.delete_records(two.source, two.first, 0, 24)
    worker = two.flow.running()
    id_ = open_id(path, "source_records_gone", worker)
    two.assert_stops(worker)
    code, done, _ = asked(path, "resolve", id_, "--skip", "--why", WHY, "--wait", "0")
    assert (code, done["acted"]) == (0, None)
    clients.delete_records(two.source, two.first, 0, 26)  # more than was decided about
    worker = two.flow.running()
    beyond = open_id(path, "source_records_gone", worker)
    assert beyond != id_
    assert two.position(two.first).offset == 24, "exactly where the decision ended"
    code, done, _ = asked(path, "resolve", beyond, "--skip", "--why", WHY)
    assert (code, done["acted"], done["moved"]) == (0, "skipped", [24, 26])
    two.wait_copied(two.first, b"later 9")
    assert two.values(two.first)[15:] == numbered("later", 10)[6:]
    assert [(it["first"], it["end"]) for it in two.status()["signed_gaps"]] == [(10, 15), (20, 24), (24, 26)]
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
def test_a_refused_record_is_skipped_or_tried_again(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path, copy = two.flow.file.path, two.copy_of(two.first)
    clients.create_topic(two.target, copy, 1, {"cleanup.policy": "compact"})
    worker = two.flow.running()
    writer = clients.producer(two.source)
    for key, value in ((b"1", b"one"), (None, b"refused"), (b"2", b"two"), (None, b"late"), (b"3", b"three")):
        clients.put(writer, two.first, value, key=key)
    id_ = open_id(path, "record_refused", worker)
    code, _, said = asked(path, "resolve", "0" * 12, "--skip", "--why", WHY)
    assert (code, "unknown" in said, id_ in said) == (REFUSED, True, True)
    assert asked(path, "resolve", id_[:6], "--skip", "--why", WHY)[1]["moved"] == [1, 2]
    two.wait_copied(two.first, b"two")
    again = open_id(path, "record_refused", worker)
    clients.set_topic_config(two.target, copy, "cleanup.policy", "delete")
    assert asked(path, "resolve", again, "--retry")[1]["acted"] == "retried"
    two.wait_copied(two.first, b"three")
    assert two.values(two.first) == [b"one", b"two", b"late", b"three"]
    assert listed(path) == []
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
def test_of_two_operators_at_once_one_decides(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    two.assert_stops(two.running(10), 0)
    lose(two, 10, 15)
    worker = two.flow.running()
    id_ = open_id(path, "source_records_gone", worker)
    two.assert_stops(worker)
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    at_once = [
        subprocess.Popen(command(path, "resolve", id_, "--skip", "--why", WHY, "--wait", "0", "--by", who), **pipe)  # type: ignore[call-overload]
        for who in ("ann", "bob")
    ]
    said = [process.communicate(timeout=60) for process in at_once]
    assert sorted(process.returncode for process in at_once) == [0, REFUSED], said
    loser = next(err for process, (_, err) in zip(at_once, said, strict=True) if process.returncode)
    winner = next(out for process, (out, _) in zip(at_once, said, strict=True) if not process.returncode)
    assert "already_decided" in loser
    worker = two.flow.running()
    two.wait_copied(two.first, b"unread 9")
    (gap,) = two.status()["signed_gaps"]
    assert f"{gap['by']} has decided" in winner
    assert f"{gap['by']} has decided" in loser
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
@pytest.mark.parametrize("step", ["before_decision", "before_end_decision", "after_decision"])
def test_killed_at_any_step_it_is_done_once(make_copying: MakeCopying, step: str) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    two.assert_stops(two.running(10), 0)
    lose(two, 10, 15)
    worker = two.flow.running(f"{step}@1=kill")
    id_ = open_id(path, "source_records_gone", worker)
    assert asked(path, "resolve", id_, "--skip", "--why", WHY, "--wait", "0")[0] == 0
    worker.wait_exit()
    worker = two.flow.running()
    two.wait_copied(two.first, b"unread 9")
    assert two.values(two.first) == [*numbered("old", 10), *numbered("unread", 10)[5:]]
    assert [(it["first"], it["end"]) for it in two.status()["signed_gaps"]] == [(10, 15)]
    assert listed(path) == []
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
def test_a_refused_record_is_set_aside_whole_with_where_it_comes_from(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path, copy = two.flow.file.path, two.copy_of(two.first)
    clients.create_topic(two.target, copy, 1, {"cleanup.policy": "compact"})
    worker = two.flow.running()
    writer = clients.producer(two.source)
    clients.put(writer, two.first, b"one", key=b"1")
    writer.produce(two.first, b"refused", partition=0, headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_000)
    assert writer.flush(30) == 0
    clients.put(writer, two.first, b"two", key=b"2")
    id_ = open_id(path, "record_refused", worker)
    code, done, said = asked(path, "resolve", id_, "--set-aside", "--why", WHY, "--by", "ann")
    assert (code, done["acted"], done["moved"], done["kept"]) == (0, "set-aside", [1, 2], "whole"), said
    two.wait_copied(two.first, b"two")
    assert two.values(two.first) == [b"one", b"two"]
    (kept,) = clients.read(two.target, f"__eos.{two.name}.aside")
    assert (kept.key(), kept.value()) == (None, b"refused")
    headers: list[Any] = list(kept.headers() or ())
    assert headers[:2] == [("h", b"1"), ("h", None)]
    ours = dict(headers[2:])
    assert (ours["eos.source.topic"], ours["eos.source.offset"]) == (two.first.encode(), b"1")
    assert (ours["eos.source.timestamp"], ours["eos.reason"]) == (b"1700000000000", b"record_refused")
    (gap,) = two.status()["signed_gaps"]
    assert (gap["command"], gap["kept"], gap["first"], gap["end"]) == ("set-aside", "whole", 1, 2)
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)


def expire(two: TwoTopics) -> None:
    """The first topic's committed positions are deleted, as they are once they have expired."""
    admin, kept = clients.admin(two.target), two.position(two.second)
    admin.delete_consumer_groups([two.flow.group])[two.flow.group].result(clients.TIMEOUT_S)
    again = ConsumerGroupTopicPartitions(two.flow.group, [kept])
    admin.alter_consumer_group_offsets([again])[two.flow.group].result(clients.TIMEOUT_S)


@pytest.mark.tier("full")
@pytest.mark.parametrize("runs", [True, False])
def test_a_position_that_has_expired_is_given_anew_and_what_follows_is_copied_once(
    make_copying: MakeCopying, *, runs: bool
) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    two.assert_stops(two.running(10), 0)
    expire(two)
    two.put(two.first, numbered("unread", 10))
    worker = two.flow.running()
    id_ = open_id(path, "position_expired", worker)
    code, _, said = asked(path, "resolve", id_, "--adopt", "21", "--why", WHY)
    assert (code, "out_of_range" in said, "ends at 20" in said) == (REFUSED, True, True)
    if not runs:
        two.assert_stops(worker)
    wait = () if runs else ("--wait", "0")
    code, done, said = asked(
        path, "resolve", id_, "--adopt", "map" if runs else "10", "--why", WHY, "--by", "ann", *wait
    )
    assert (code, done["acted"]) == (0, "adopted" if runs else None), said
    if not runs:
        worker = two.flow.running()
    two.wait_copied(two.first, b"unread 9")
    assert two.values(two.first) == [*numbered("old", 10), *numbered("unread", 10)]
    status = two.status()
    assert status["signed_gaps"] == []
    (adopted,) = [it for it in status["adoptions"] if it["topic"] == two.first]
    assert (adopted["offset"], adopted["by"], adopted["why"]) == (10, "ann", WHY)
    two.assert_stops(worker, 0)
    worker = two.flow.running()
    two.put(two.first, [b"on"])
    two.wait_copied(two.first, b"on")
    assert two.values(two.first)[20:] == [b"on"]
    two.assert_stops(worker, 0)


@pytest.mark.tier("long", kafka="long")
def test_the_map_gives_no_position_where_its_last_copy_may_stand_on_another_target(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    two.assert_stops(two.running(10), 0)
    two.flow.file.write(rename="{topic}.other")
    worker = two.flow.running()
    clients.wait_value(two.target, f"{two.first}.other", 0, b"old 9")
    two.assert_stops(worker, 0)
    two.flow.file.write(rename="{topic}.copy")
    expire(two)
    worker = two.flow.running()
    id_ = open_id(path, "position_expired", worker)
    code, _, said = asked(path, "resolve", id_, "--adopt", "map", "--why", WHY)
    assert (code, f"was copied to {two.first}.other[0], too, under another rename" in said) == (REFUSED, True), said
    code, done, said = asked(path, "resolve", id_, "--adopt", "10", "--why", WHY)
    assert (code, done["acted"]) == (0, "adopted"), said
    two.assert_stops(worker, 0)
    assert two.values(two.first) == numbered("old", 10)


def filled_by_another(two: TwoTopics) -> tuple[Replicator, str]:
    """Another program has copied six of ten records of the first topic; the flow's first worker, and its incident."""
    copy = two.copy_of(two.first)
    two.put(two.first, numbered("old", 10))
    clients.create_topic(two.target, copy)
    clients.put(clients.producer(two.target), copy, *numbered("old", 6))
    worker = two.flow.running()
    return worker, open_id(two.flow.file.path, "target_not_empty", worker)


@pytest.mark.tier("full")
def test_what_another_program_has_copied_is_adopted_by_a_new_flow(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    worker, id_ = filled_by_another(two)
    code, done, said = asked(path, "resolve", id_, "--adopt", "6", "--why", WHY)
    assert (code, done["acted"]) == (0, "adopted"), said
    two.wait_copied(two.first, b"old 9")
    assert two.values(two.first) == numbered("old", 10)
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)


def created_again(two: TwoTopics, word: str) -> None:
    """The first topic is another one at the source, with ten records."""
    clients.recreate_topic(two.source, two.first)
    two.put(two.first, numbered(word, 10))


@pytest.mark.tier("full")
def test_a_source_topic_that_was_created_again_is_copied_from_its_beginning(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    worker = two.running(10)
    created_again(two, "new")
    id_ = open_id(path, "source_topic_recreated", worker)
    code, shown, _ = asked(path, "show", id_)
    assert (code, shown["commands"]) == (0, ["--retry", "--restart-topic"])
    two.assert_stops(worker)
    created_again(two, "newer")
    code, _, said = asked(path, "resolve", id_, "--restart-topic", "--why", WHY)
    assert (code, "outdated" in said) == (REFUSED, True), said

    worker = two.flow.running()
    again = open_id(path, "source_topic_recreated", worker)
    assert again != id_, "it is another topic than somebody has looked at"
    code, done, said = asked(path, "resolve", again, "--restart-topic", "--why", WHY, "--by", "ann")
    assert (code, done["acted"], done["moved"]) == (0, "restarted", [10, 0]), said
    two.wait_copied(two.first, b"newer 9")
    assert two.values(two.first) == [*numbered("old", 10), *numbered("newer", 10)]
    (adopted,) = two.status()["adoptions"]
    assert (adopted["offset"], adopted["by"], adopted["incident"]) == (0, "ann", "source_topic_recreated")
    assert adopted["former_topic_id"]
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    worker = two.flow.running()
    two.put(two.first, [b"on"])
    two.wait_copied(two.first, b"on")
    assert two.values(two.first)[20:] == [b"on"]
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
def test_a_target_topic_that_was_created_again_is_filled_from_the_beginning(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=2))
    path = two.flow.file.path
    two.put(two.first, numbered("other", 3), partition=1)
    two.assert_stops(two.running(10), 0)
    clients.recreate_topic(two.target, two.copy_of(two.first), 2)
    worker = two.flow.running()

    def found() -> list[str]:
        return [it["id"] for it in listed(path) if it["name"] == "target_topic_recreated" and it["commands"]]

    wait_until(lambda: len(found()) == 2, "both partitions are listed", worker.tail)
    first, second = found()
    code, done, said = asked(path, "resolve", first, "--restart-topic", "--why", WHY)
    assert (code, done["acted"]) == (0, "restarted"), said
    assert done["also_decided"] == [{"id": second, "topic": two.first, "partition": 1}]
    two.wait_copied(two.first, b"old 9")
    two.wait_copied(two.first, b"other 2", partition=1)
    assert two.values(two.first) == numbered("old", 10)
    assert two.values(two.first, 1) == numbered("other", 3)
    assert listed(path) == []
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    words = [sys.executable, "-m", "cli.main", "verify", "-c", str(path), "--json"]
    verified = subprocess.run(words, capture_output=True, text=True, check=False, timeout=90)
    assert (verified.returncode, json.loads(verified.stdout)["verdict"]) == (0, "stands"), verified.stdout


@pytest.mark.tier("full")
@pytest.mark.parametrize("step", ["before_end_decision@2", "after_decision@2"])
def test_the_policy_decides_within_its_bound_over_a_kill_and_the_rest_waits_for_an_operator(
    make_copying: MakeCopying, step: str
) -> None:
    rule = {"record_refused": {"decide": "set_aside", "gap_offsets_max_per_day": 2}}
    two = TwoTopics(make_copying(partitions=1, policy=rule))
    path, copy = two.flow.file.path, two.copy_of(two.first)
    clients.create_topic(two.target, copy, 1, {"cleanup.policy": "compact"})
    writer = clients.producer(two.source)
    for key, value in ((b"1", b"one"), (None, b"a"), (b"2", b"two"), (None, b"b"), (None, b"c"), (b"3", b"three")):
        clients.put(writer, two.first, value, key=key)
    worker = two.flow.running(f"{step}=kill")
    worker.wait_exit()
    worker = two.flow.running()
    worker.wait_event("policy_bound_reached", topic=two.first)
    two.wait_copied(two.first, b"two")
    assert two.values(two.first) == [b"one", b"two"]
    aside = f"__eos.{two.name}.aside"
    assert clients.values(clients.read(two.target, aside)) == [b"a", b"b"]
    gaps = two.status()["signed_gaps"]
    assert [(gap["first"], gap["end"], gap["by"]) for gap in gaps] == [(1, 2, "policy"), (3, 4, "policy")]
    id_ = open_id(path, "record_refused", worker)
    code, _, said = asked(path, "resolve", id_, "--skip", "--why", WHY, "--by", "policy")
    assert (code, "--by policy" in said) == (2, True), said
    assert asked(path, "resolve", id_, "--skip", "--why", WHY, "--by", "ann")[0] == 0
    two.wait_copied(two.first, b"three")
    assert two.values(two.first) == [b"one", b"two", b"three"]
    assert [gap["by"] for gap in two.status()["signed_gaps"]] == ["policy", "policy", "ann"]
    two.assert_stops(worker, 0)
