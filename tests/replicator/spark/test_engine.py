"""Tasks on a real local Spark: those that die are tried again, a cancelled round ends, errors keep their class."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest
from pyspark.sql import SparkSession

from replicator import config
from replicator.config.load import FlowFileError
from replicator.config.source import Fault
from replicator.jobs.engine import Cancelled
from replicator.jobs.range_copy import RangeDone, RangeTask
from replicator.lane.commit_checks import IdMismatch, OriginMismatch, TimestampsReplaced
from replicator.lane.plan import LanePlan
from replicator.lane.readiness import TargetNotReady
from replicator.model.errors import ConfigError, Fatal, Incident, NotAllowed, ReplicatorError, Unreachable
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.planes.contract import RecordsRefused, Refusal
from replicator.spark import engine as engine_module
from replicator.spark import task_log
from replicator.spark.engine import SparkEngine
from replicator.spark.task_log import TaskLog
from replicator.state.decisions import NotDecided, Objection
from replicator.state.generation import LaneAssignment

ENDED_S_MAX = 15.0
AT = Partition("t", 1)
FILE = """\
clusters:
  a: {properties: {bootstrap.servers: "127.0.0.1:1", sasl.password: "${SECRET}"}}
  b: {properties: {bootstrap.servers: "127.0.0.1:2"}}
flows: {f: {source: a, target: b, topics: [t]}}
"""
FACTS: dict[type[ReplicatorError], Callable[[], ReplicatorError]] = {
    Incident: lambda: Incident("word", "detail", topic="t", partition=1, offset=7, advice="do"),
    FlowFileError: lambda: FlowFileError("file", [Fault(3, "flows.f", "it is wrong")]),
    NotAllowed: lambda: NotAllowed("Write on topic t", [AT]),
    IdMismatch: lambda: IdMismatch({AT: "the id of another topic"}, [AT]),
    OriginMismatch: lambda: OriginMismatch({AT: Incident("word", "detail", topic="t", partition=1)}),
    TimestampsReplaced: lambda: TimestampsReplaced([Incident("word", "detail", topic="t", partition=1)]),
    TargetNotReady: lambda: TargetNotReady({AT: "no leader"}),
    NotDecided: lambda: NotDecided(Objection.OUTDATED, "its facts have changed"),
    RecordsRefused: lambda: RecordsRefused("refused", {AT: Refusal((5, 6), "INVALID_RECORD")}),
}


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[SparkEngine]:
    with SparkEngine(spark, TaskLog()) as running:
        yield running


def all_errors() -> list[type[ReplicatorError]]:
    found, left = [], [ReplicatorError]
    while left:
        found.append(left.pop())
        left += found[-1].__subclasses__()
    return found


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_comes_through_a_pickle(kind: type[ReplicatorError]) -> None:
    error = FACTS.get(kind, lambda: kind("what happened"))()
    done = pickle.loads(pickle.dumps(RangeDone(AT, 5, 4, 3, 0.5, "host:1:x", error)))
    assert type(done.error) is kind
    assert (str(done.error), vars(done.error)) == (str(error), vars(error))
    assert done.error.exit_code == error.exit_code


def a_task() -> RangeTask:
    flow = config.load_text(FILE, env={"SECRET": "s3cret"}).flows["f"]
    assignment = LaneAssignment.by_partition({"t": 2})
    plan = LanePlan(flow, 3, 1, "", "cluster", (Route(AT, AT, "id", "id"),), 1, assignment)
    return RangeTask(plan, AT, 10, 20, 5.0)


def test_a_task_comes_through_a_pickle() -> None:
    task = a_task()
    there = pickle.loads(pickle.dumps(task))
    assert there == task
    assert there.plan.lane == 1
    assert there.plan.flow.source.properties["sasl.password"] == "s3cret"
    assert "s3cret" not in repr(there)


def test_tasks_run_on_this_python(engine: SparkEngine) -> None:
    def executable(_: int) -> str:
        import sys

        return sys.executable

    assert engine.each(executable, [1], "") == [sys.executable]


def test_a_task_that_dies_with_its_process_is_tried_again(engine: SparkEngine, tmp_path: Path) -> None:
    engine.check()
    assert engine.slots == 2

    def die_once(number: int) -> tuple[int, int]:
        from pyspark import TaskContext

        died = tmp_path / str(number)
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number, TaskContext.get().attemptNumber()  # type: ignore[union-attr]

    assert sorted(engine.each(die_once, [1, 2, 3], "")) == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.tier("full")
def test_what_ends_a_job_is_named(engine: SparkEngine, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fail(_: int) -> None:
        raise ValueError("three")

    def lack(_: int) -> None:
        import of_another_version  # type: ignore[import-not-found]  # noqa: F401

    with pytest.raises(Unreachable, match=r"Spark failed: .*Python worker exited unexpectedly") as died:
        engine.each(die, [1], "")
    assert "\n" not in str(died.value)
    with pytest.raises(Fatal, match=r"^a task failed with a bug: ValueError: three$"):
        engine.each(fail, [1], "")
    with pytest.raises(ConfigError, match=r"No module named 'of_another_version' \(on .*; install the same eos-"):
        engine.each(lack, [1], "")
    engine.check(["json"])
    with pytest.raises(ConfigError, match=r"No module named 'what_only_the_driver_has' \(on .*; install the same eos-"):
        engine.check(["what_only_the_driver_has"])
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    with pytest.raises(ConfigError, match="/nowhere/python"):
        engine.check()


def test_cancel_ends_the_round_and_all_later_ones(engine: SparkEngine, spark: SparkSession, tmp_path: Path) -> None:
    def wait(number: int) -> None:
        (tmp_path / str(number)).write_text(str(os.getpid()))
        (tmp_path / str(number)).rename(tmp_path / f"pid{number}")
        threading.Event().wait(60)

    def cancel() -> None:
        while len(list(tmp_path.glob("pid*"))) < 2:
            time.sleep(0.02)
        engine.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Cancelled):
        engine.each(wait, [1, 2], "")
    canceller.join()
    with pytest.raises(Cancelled):
        engine.submit(a_task()).result(ENDED_S_MAX)
    assert spark.sparkContext.parallelize([1]).collect() == [1], "jobs that are not rounds go on"
    left = [int(path.read_text()) for path in tmp_path.glob("pid*")]
    deadline = time.monotonic() + ENDED_S_MAX
    while any(Path(f"/proc/{pid}").exists() for pid in left):
        assert time.monotonic() < deadline, "Python workers of a cancelled round run on"
        time.sleep(0.1)


def test_a_slot_that_falls_free_is_taken_while_other_tasks_run(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four tasks in two slots; the first one runs until the last one has."""

    def wait_or_touch(log: TaskLog, failpoint: str, task: RangeTask) -> RangeDone:
        if task.start == 0:
            deadline = time.monotonic() + 30
            while not (tmp_path / "3").exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
        else:
            (tmp_path / str(task.start)).touch()
        return RangeDone(task.at, task.end, 0, 0, 0.0, "me")

    monkeypatch.setattr(engine_module, "run_task", wait_or_touch)
    futures = [engine.submit(replace(a_task(), start=number, end=number + 1)) for number in range(4)]
    assert [future.result(60).position for future in futures] == [1, 2, 3, 4]


def test_what_is_given_up_ends_and_later_tasks_run(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(log: TaskLog, failpoint: str, task: RangeTask) -> RangeDone:
        if task.start == 0:
            (tmp_path / "runs").touch()
            threading.Event().wait(60)
        return RangeDone(task.at, task.end, 0, 0, 0.0, "me")

    monkeypatch.setattr(engine_module, "run_task", wait)
    stuck = engine.submit(replace(a_task(), start=0))
    while not (tmp_path / "runs").exists():
        time.sleep(0.02)
    engine.give_up()
    with pytest.raises(Unreachable):
        stuck.result(ENDED_S_MAX)
    assert engine.submit(replace(a_task(), start=1)).result(ENDED_S_MAX).position == 20


def test_slots_are_those_of_tasks_and_one_more_where_executors_come_on_demand(
    engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.slots == 2
    conf = engine._context.getConf()
    monkeypatch.setattr(engine._context, "getConf", lambda: conf)
    conf.set("spark.task.cpus", "2")
    assert engine.slots == 1
    conf.set("spark.dynamicAllocation.enabled", "true")
    assert engine.slots == 2


def test_lines_of_local_tasks_come_back(spark: SparkSession) -> None:
    lines: SimpleQueue[str] = SimpleQueue()
    with task_log.forwarded("json", "info", lines.put) as log, SparkEngine(spark, log) as engine:

        def say(number: int) -> None:
            import structlog

            from replicator.spark import task_log

            task_log.configure(log)
            structlog.get_logger().info("said", number=number)

        engine.each(say, [1, 2, 3], "")
    said = [lines.get_nowait() for _ in range(lines.qsize())]
    assert sorted(number for number in (1, 2, 3) for line in said if f'"number": {number}' in line) == [1, 2, 3]
