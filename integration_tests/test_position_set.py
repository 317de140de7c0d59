"""`position show`, `export` and `set`, typed: the flow goes on where it was told to, once, and that is on record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import FAILPOINTS
from integration_tests.harness.two_topics import TwoTopics, numbered
from replicator import config
from replicator.jobs.clients import JobClients
from replicator.jobs.position_set import PositionSet, SetRequest
from replicator.model.errors import TakenOver
from replicator.model.partition import Partition
from replicator.state.decisions import NotDecided, Objection
from replicator.state.exported_positions import WantedPosition
from replicator.state.generation import Generation

REFUSED, HELD = 1, 5
WHY = "copied wrongly before"


def command(two: TwoTopics, *words: str) -> list[str]:
    """A command about positions."""
    return [sys.executable, "-m", "cli.main", "position", *words, "-c", str(two.flow.file.path)]


def asked(two: TwoTopics, *words: str, said: str | None = None, step: str = "") -> tuple[int, str, str]:
    """Exit code, stdout and stderr; `said`: what is typed, `step`: where it is killed."""
    done = subprocess.run(
        command(two, *words),
        input=said,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env={**os.environ, FAILPOINTS: f"{step}=kill" if step else ""},
    )
    return done.returncode, done.stdout, done.stderr


def set_words(two: TwoTopics, offset: int, *more: str) -> tuple[str, ...]:
    """`set` of the first topic, confirmed beforehand."""
    at = ("--partition", f"{two.first}:0", "--offset", str(offset))
    return ("set", *at, "--why", WHY, "--by", "ann", "--yes-i-mean", two.name, *more)


def shown(two: TwoTopics, topic: str) -> dict[str, Any]:
    """What `position show` says of a topic's partition 0."""
    code, out, said = asked(two, "show", "--partition", f"{topic}:0", "--json")
    assert code == 0, said
    (row,) = json.loads(out)["flows"][0]["partitions"]
    return dict(row)


def stopped(make_copying: MakeCopying, records: int = 10, **settings: Any) -> TwoTopics:
    """A flow that has copied `old 0`… and has been stopped."""
    two = TwoTopics(make_copying(partitions=1, **settings))
    two.assert_stops(two.running(records), 0)
    return two


@pytest.mark.tier("full")
def test_a_position_goes_back_and_forward_and_both_are_on_record(make_copying: MakeCopying, tmp_path: Path) -> None:
    two = stopped(make_copying)
    row = shown(two, two.first)
    assert (row["position"], row["lag_records"], row["owner"], row["records_copied"]) == (10, 0, None, 10)
    kept = tmp_path / "positions.json"
    assert asked(two, "export", "--output", str(kept))[0] == 0
    assert len(json.loads(kept.read_text())["positions"]) == 2

    words = [word for word in set_words(two, 6) if word not in ("--yes-i-mean", two.name)]
    code, out, said = asked(two, *words, said="no\n")
    assert (code, "6 to 9 are copied again: up to 4 records" in out, "nothing was changed" in said) == (1, True, True)
    code, _, said = asked(two, *words, said="")
    assert (code, "nothing was changed" in said) == (1, True), "the end of the input is no answer"
    assert shown(two, two.first)["position"] == 10
    stands = ("--partition", f"{two.second}:0", "--offset", "10")
    code, out, said = asked(two, *words, *stands, said=f"{two.name}\n")
    assert (code, "stands there already" in out) == (0, True), said
    assert said == f"Type {two.name} to go on: ", "no line of the log stands between what is shown"
    assert shown(two, two.first)["position"] == 6
    worker = two.flow.running()
    two.wait_position(two.first, 10)
    assert two.values(two.first) == [*numbered("old", 10), *numbered("old", 10)[6:]]
    two.assert_second_goes_on()
    (adopted,) = two.status()["adoptions"]
    assert (adopted["topic"], adopted["offset"], adopted["by"], adopted["why"]) == (two.first, 6, "ann", WHY)
    assert two.status()["signed_gaps"] == []
    two.assert_stops(worker, 0)

    two.put(two.first, numbered("later", 10))
    code, out, said = asked(two, *set_words(two, 15))
    assert (code, "10 to 14 are left out: up to 5 records" in out) == (0, True), said
    worker = two.flow.running()
    two.wait_copied(two.first, b"later 9")
    assert two.values(two.first)[14:] == numbered("later", 10)[5:]
    (gap,) = two.status()["signed_gaps"]
    assert (gap["first"], gap["end"], gap["by"], gap["why"], gap["incident"]) == (10, 15, "ann", WHY, "position_set")
    two.assert_stops(worker, 0)

    code, out, said = asked(two, "set", "--file", str(kept), "--why", WHY, "--yes-i-mean", two.name, "--json")
    assert code == 0, said
    rows = {row["topic"]: row for row in json.loads(out)["partitions"]}
    assert (rows[two.first]["before"], rows[two.first]["after"], rows[two.first]["copied_again"]) == (20, 10, 10)
    assert (rows[two.second]["before"], rows[two.second]["recorded_as"]) == (11, "adoption")
    worker = two.flow.running()
    two.wait_position(two.first, 20)
    assert two.values(two.first)[19:] == numbered("later", 10), "what was left out is copied now"
    assert two.status()["signed_gaps"] == [], "it is copied after all"
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
def test_who_runs_the_flow_is_left_alone_and_a_zombie_writes_nothing_more(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1, limits={"transaction_timeout_ms": 3_000}))
    worker = two.running(10)
    code, _, said = asked(two, *set_words(two, 6))
    assert (code, "holds it under generation" in said) == (HELD, True)
    two.assert_second_goes_on()
    two.put(two.first, numbered("unread", 5))
    two.wait_position(two.first, 15)
    worker.suspend()
    two.put(two.first, numbered("unseen", 5))
    code, _, said = asked(two, *set_words(two, 18, "--take-over"))
    assert code == 0, said
    ends = two.values(two.first)
    worker.resume()
    assert worker.wait_exit() == HELD, worker.tail()
    assert two.values(two.first) == ends, "the zombie wrote to the target"
    assert shown(two, two.first)["position"] == 18
    worker = two.flow.running()
    two.wait_copied(two.first, b"unseen 4")
    assert two.values(two.first) == [*ends, b"unseen 3", b"unseen 4"]
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
@pytest.mark.parametrize("back", [pytest.param(True, marks=pytest.mark.tier("long")), False])
@pytest.mark.parametrize(
    "step", ["position_set_opened", "before_position_set", "before_end_position_set", "after_position_set"]
)
def test_killed_at_any_step_it_is_done_or_not_and_blocks_nobody(
    make_copying: MakeCopying, step: str, *, back: bool
) -> None:
    two = stopped(make_copying)
    two.put(two.first, numbered("unread", 10))
    to = 6 if back else 15
    code, _, said = asked(two, *set_words(two, to), step=f"{step}@1")
    assert code == -signal.SIGKILL, said
    done = step == "after_position_set"
    two.flow.wait_stable()
    assert shown(two, two.first)["position"] == (to if done else 10)
    if not done:
        assert two.status()["signed_gaps"] == two.status()["adoptions"] == []
    if not done:  # typed again, it goes through
        code, _, said = asked(two, *set_words(two, to))
        assert code == 0, said
    worker = two.flow.running()
    two.wait_copied(two.first, b"unread 9")
    source = [*numbered("old", 10), *numbered("unread", 10)]
    assert two.values(two.first) == [*source[:10], *source[to:]]
    status = two.status()
    assert (len(status["adoptions"]), len(status["signed_gaps"])) == (int(back), int(not back))
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
@pytest.mark.parametrize("step", ["position_set_opened", "before_position_set", "before_end_position_set"])
def test_a_command_that_wakes_up_after_the_flow_was_started_sets_nothing(make_copying: MakeCopying, step: str) -> None:
    two = stopped(make_copying)
    environment = {**os.environ, FAILPOINTS: f"{step}@1=stop"}
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    zombie = subprocess.Popen(command(two, *set_words(two, 6)), env=environment, **pipe)  # type: ignore[call-overload]
    status = Path(f"/proc/{zombie.pid}/stat")
    wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", "the command stands still", lambda: "")
    worker = two.flow.running()
    two.assert_second_goes_on()
    zombie.send_signal(signal.SIGCONT)
    _, said = zombie.communicate(timeout=90)
    assert (zombie.returncode, "has taken over" in said) == (HELD, True), said
    two.assert_second_goes_on()
    two.put(two.first, [b"on"])
    two.wait_copied(two.first, b"on")
    assert two.values(two.first) == [*numbered("old", 10), b"on"]
    assert two.status()["adoptions"] == []
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
def test_of_two_operators_at_once_each_is_told_what_became_of_it(make_copying: MakeCopying) -> None:
    two = stopped(make_copying)
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    offsets = (3, 7)
    at_once = [
        subprocess.Popen(command(two, *set_words(two, offset)), **pipe)  # type: ignore[call-overload]
        for offset in offsets
    ]
    said = [process.communicate(timeout=90) for process in at_once]
    codes = [process.returncode for process in at_once]
    done = [offset for offset, code in zip(offsets, codes, strict=True) if code == 0]
    assert done, said
    assert set(codes) <= {0, REFUSED, HELD}, said
    adopted = [it["offset"] for it in two.status()["adoptions"]]
    assert sorted(adopted) == sorted(done), said
    assert shown(two, two.first)["position"] == adopted[-1]


class Overtaken(PositionSet):
    """A command that another one overtakes, just as it is about to open a generation of its own."""

    other: Callable[[], None] | None = None

    def _check_free(self, clients: JobClients, found: Generation) -> None:
        super()._check_free(clients, found)
        if self.other is not None:
            other, self.other = self.other, None
            other()


@pytest.mark.tier("long", kafka="long")
def test_who_is_overtaken_by_another_command_is_told_so(make_copying: MakeCopying) -> None:
    two = stopped(make_copying)
    loaded = config.load(two.flow.file.path)
    wanted = [WantedPosition(source=Partition(two.first, 0), offset=3)]
    request = SetRequest(wanted=wanted, by="ben", why=WHY)
    late = Overtaken(loaded.flows[two.name], loaded, request, structlog.get_logger())
    plan = late.plan()
    codes: list[int] = []
    late.other = lambda: codes.append(asked(two, *set_words(two, 7))[0])
    with pytest.raises(TakenOver) as told:
        late.apply(plan)
    assert codes == [0]
    assert str(told.value) == (
        f"flow {two.name}: another command or worker has taken over meanwhile. No position was set"
    )
    assert shown(two, two.first)["position"] == 7


class Changed:
    """What was changed after it was shown."""

    @staticmethod
    def target_grows(two: TwoTopics) -> None:
        clients.put(clients.producer(two.target), two.copy_of(two.first), b"foreign")

    @staticmethod
    def source_again(two: TwoTopics) -> None:
        clients.recreate_topic(two.source, two.first)
        two.put(two.first, numbered("new", 10))

    @staticmethod
    def target_again(two: TwoTopics) -> None:
        clients.recreate_topic(two.target, two.copy_of(two.first))

    @staticmethod
    def records_gone(two: TwoTopics) -> None:
        clients.delete_records(two.source, two.first, 0, 8)

    @staticmethod
    def flow_runs(two: TwoTopics) -> None:
        two.put(two.first, numbered("more", 5))
        worker = two.flow.running()
        two.wait_position(two.first, 15)
        two.assert_stops(worker, 0)


def planned(two: TwoTopics, offset: int, topic_id: str = "", *, take_over: bool = False) -> PositionSet:
    loaded = config.load(two.flow.file.path)
    wanted = [WantedPosition(source=Partition(two.first, 0), offset=offset, source_topic_id=topic_id)]
    request = SetRequest(wanted=wanted, by="ann", why=WHY, take_over=take_over)
    return PositionSet(loaded.flows[two.name], loaded, request, structlog.get_logger())


@pytest.mark.tier("full")
@pytest.mark.parametrize(
    ("change", "objection"),
    [
        (Changed.target_grows, Objection.OUTDATED),
        (Changed.source_again, Objection.STOPPED),
        (Changed.target_again, Objection.NO_POSITION),
        (Changed.records_gone, Objection.OUT_OF_RANGE),
        (Changed.flow_runs, Objection.OUTDATED),
    ],
)
def test_what_has_changed_since_it_was_shown_is_refused(
    make_copying: MakeCopying, change: Callable[[TwoTopics], None], objection: Objection
) -> None:
    two = stopped(make_copying)
    job = planned(two, 6)
    plan = job.plan()
    change(two)
    before = two.position(two.first)
    with pytest.raises(NotDecided) as refused:
        job.apply(plan)
    assert refused.value.reason is objection, refused.value
    assert (two.position(two.first).offset, two.position(two.first).metadata) == (before.offset, before.metadata)
    assert two.status()["adoptions"] == []


@pytest.mark.tier("full")
def test_a_worker_that_starts_while_it_is_asked_keeps_the_flow(make_copying: MakeCopying) -> None:
    two = stopped(make_copying)
    job = planned(two, 6)
    plan = job.plan()
    worker = two.flow.running()
    two.assert_second_goes_on()
    with pytest.raises(TakenOver):
        job.apply(plan)
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)


@pytest.mark.tier("full")
def test_records_of_somebody_else_are_adopted_and_the_flow_goes_on(make_copying: MakeCopying) -> None:
    two = stopped(make_copying)
    clients.put(clients.producer(two.target), two.copy_of(two.first), b"foreign 1", b"foreign 2")
    two.put(two.first, numbered("unread", 3))
    worker = two.flow.running()
    worker.wait_incident("target_has_later_records")
    two.assert_stops(worker)
    code, out, said = asked(two, *set_words(two, 10))
    assert (code, "count as the copy of everything before source offset 10" in out) == (0, True), said
    worker = two.flow.running()
    two.wait_copied(two.first, b"unread 2")
    assert two.values(two.first)[10:] == [b"foreign 1", b"foreign 2", *numbered("unread", 3)]
    assert [it["offset"] for it in two.status()["adoptions"]] == [10]
    two.assert_stops(worker, 0)
