"""Several processes of one flow share its lanes: they join, leave, die and stand still, and nothing is lost or doubled.

EOS_WORKERS_SEEDS=11,12,13 runs these schedules.
"""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import DEFAULT, Replicator

LANES, PARTITIONS = 4, 8
WORKERS_MAX = 3
FAULTS = 10
SESSION_S = 10.0
SEEDS = [int(text) for text in os.environ.get("EOS_WORKERS_SEEDS", "3").split(",")]
AT_THE_START = ("fenced", "claimed")
"""Steps that a worker may go through for one lane only, and once."""
STEPS = (*AT_THE_START, "before_send", "before_flush", "before_offsets", "before_end_txn", "after_end_txn")
TAKEN_OVER = "took_over"


class Crew:
    """The workers of one flow, and what can happen to them."""

    def __init__(self, copying: Copying, target: BrokerHandle, seed: int = 0) -> None:
        self.copying, self._target, self._random = copying, target, random.Random(seed)
        self.alive: list[Replicator] = []
        self.ended: list[Replicator] = []
        self._told = 0
        self._files: list[dict[str, Any]] = [{"lanes": LANES, "commit": {"linger_ms": DEFAULT}}]
        self.proposed_max, self.applied = 1, 0

    def join(self, failpoints: str = "") -> Replicator:
        """Start a worker."""
        worker = self.copying.run(failpoints, "--shared")
        self.alive.append(worker)
        return worker

    def leave(self, worker: Replicator) -> None:
        """Stop a worker as a rolling restart does: once it hears signals."""
        worker.wait_event("connecting")
        assert worker.stop() == 0, worker.tail()
        self._gone(worker)

    def kill(self, worker: Replicator) -> None:
        """SIGKILL."""
        worker.kill()
        self._gone(worker)

    def _gone(self, worker: Replicator) -> None:
        self.alive.remove(worker)
        self.ended.append(worker)

    def stop(self) -> None:
        """Stop all of them, one after the other."""
        for worker in list(self.alive):
            self.leave(worker)

    def held(self) -> list[set[int]]:
        """The lanes that the group has given to each worker that is alive, by what each has logged last."""
        assigned = [worker.seen("lanes_assigned") for worker in self.alive]
        return [set(events[-1]["lanes"]) if events else set() for events in assigned]

    def wait_shared(self, lanes: int = LANES) -> None:
        """Until each lane is one worker's, and all have as many as they can."""

        def shared() -> bool:
            held = self.held()
            everything = sorted(lane for lanes in held for lane in lanes) == list(range(lanes))
            sizes = [len(lanes) for lanes in held]
            return everything and max(sizes) - min(sizes) <= 1

        wait_until(shared, "the lanes are shared", lambda: "\n---\n".join(worker.tail() for worker in self.alive))

    def wait_followed(self) -> None:
        """Until the lanes of the open generation are shared: a worker that has just started may open another one."""

        def followed() -> bool:
            code, found = self.copying.asked("workers")
            assert code == 0
            held = sorted(lane for lanes in self.held() for lane in lanes)
            return found["generation"] is not None and held == list(range(found["lanes"]))

        wait_until(followed, "the open generation is followed", lambda: "\n---\n".join(it.tail() for it in self.alive))

    def shown(self) -> list[set[int]]:
        """The lanes of each worker that is alive, as `workers` shows them once all of them have proved theirs."""
        found: dict[str, Any] = {}

        def proved() -> bool:
            nonlocal found
            code, found = self.copying.asked("workers")
            assert code == 0
            return not found["unassigned"] and all(lane["since_ms"] for it in found["workers"] for lane in it["lanes"])

        wait_until(proved, "each lane is proved", lambda: str(found))
        lanes = {it["pid"]: {lane["lane"] for lane in it["lanes"]} for it in found["workers"]}
        return [lanes[worker.pid] for worker in self.alive]

    def finish(self) -> None:
        """Everything is copied, all stop cleanly, and the copy is exact."""
        self.copying.wait_copied()
        self.stop()
        self.copying.assert_exact()

    def strike(self) -> None:
        """Draw something and let it happen."""
        happens = self._random.choices(
            (
                self._join,
                self._leave,
                self._kill,
                self._kill_at_a_step,
                self._stand_still,
                self._kill_the_target,
                self._deploy,
                self._go_back,
                self._apply,
            ),
            weights=(4, 3, 3, 3, 2, 1, 2, 1, 2),
        )[0]
        happens()

    def _tell(self, text: str) -> None:
        self._told += 1
        print(f"{self._told}: {text}, then {len(self.alive)} workers")

    def _join(self) -> None:
        if len(self.alive) < WORKERS_MAX:
            self.join().wait_event("lanes_assigned")
            self._tell("one joins")

    def _leave(self) -> None:
        worker = self._random.choice(self.alive)
        if len(self.alive) > 1:
            self.leave(worker)
            self._tell("one leaves")

    def _kill(self) -> None:
        worker = self._random.choice(self.alive)
        self.kill(worker)
        if not self.alive or self._random.random() < 0.5:
            self.join()
        self._tell("SIGKILL")

    def _kill_at_a_step(self) -> None:
        step = self._random.choice(STEPS)
        number = 1 if step in AT_THE_START else self._random.randint(1, 4)
        doomed = self.join(f"{step}@{number}=kill")
        wait_until(lambda: not doomed.runs_on(0) or self._has_none(doomed), "it dies, or has no lane", doomed.tail)
        if doomed.runs_on(0):  # there are more workers than lanes: it comes to no step
            doomed.kill()
        assert doomed.wait_exit() == -signal.SIGKILL, doomed.tail()
        self._gone(doomed)
        self._tell(f"one joins and is killed at {step} {number}")

    @staticmethod
    def _has_none(worker: Replicator) -> bool:
        assigned = worker.seen("lanes_assigned")
        return bool(assigned) and assigned[-1]["lanes"] == []

    def _stand_still(self) -> None:
        """For less or for more than a session: then its lanes are another worker's."""
        worker, long = self._random.choice(self.alive), self._random.random() < 0.5
        if len(self.alive) < 2:
            return
        others = [other for other in self.alive if other is not worker]
        marks = [other.mark() for other in others]
        worker.suspend()
        if long:
            wait_until(
                lambda: any(it.seen("lanes_assigned", after=at) for it, at in zip(others, marks, strict=True)),
                "its lanes are given to another worker",
                others[0].tail,
            )
        worker.resume()
        self._tell("one stands still for " + ("longer" if long else "less") + " than a session")

    def _kill_the_target(self) -> None:
        self._target.kill()
        self._target.restart()
        self._tell("the target is killed")

    def _deploy(self) -> None:
        """A file that the flow has never had, for all that start from now on."""
        file = {"lanes": self._random.randint(1, LANES + 1), "commit": {"linger_ms": 3 + len(self._files)}}
        self._files.append(file)
        self.proposed_max += 1
        self.copying.file.write(**file)
        self._tell(f"{file} is deployed")

    def _go_back(self) -> None:
        file = self._random.choice(self._files)
        self.copying.file.write(**file)
        self._tell(f"{file} is deployed again")

    def _apply(self) -> None:
        """The file is applied, or whoever does it dies on the way: then the workers finish what has begun."""
        lives_s = self._random.choice((None, self._random.uniform(0.3, 1.5)))
        code = self.copying.killed_after("apply", lives_s)
        self.applied += 1
        assert code in ((0,) if lives_s is None else (0, -signal.SIGKILL)), code
        self._tell(f"the file is applied, with exit code {code}")


def crew_of(make_copying: MakeCopying, target: BrokerHandle, seed: int = 1) -> Crew:
    """A flow of four lanes that nobody runs yet."""
    return Crew(make_copying(partitions=PARTITIONS, lanes=LANES, seed=seed), target, seed)


@pytest.mark.tier(kafka="full")
def test_workers_join_leave_and_die(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """Each lane has one worker; those of one that leaves or dies go to the others, and nobody is thrown out."""
    crew = crew_of(make_copying, target)
    with crew.copying.writing():
        first = crew.join()
        first.wait_event("lane_started", lane=LANES - 1)
        second, third = crew.join(), crew.join()
        crew.wait_shared()
        assert crew.shown() == crew.held()
        crew.leave(second)
        crew.wait_shared()
        crew.kill(third)
        crew.wait_shared()
        assert crew.held() == [set(range(LANES))]
    crew.finish()


@pytest.mark.tier("full")
def test_three_begin_a_new_flow_at_once(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """Each finds that nobody has opened it, and that the group is empty."""
    crew = crew_of(make_copying, target)
    crew.copying.load.mixed(300)
    for _ in range(WORKERS_MAX):
        crew.join()
    crew.wait_shared()
    crew.copying.load.mixed(300)
    crew.finish()
    opened = [event for worker in crew.ended for event in worker.seen("generation_opened")]
    assert [event["generation"] for event in opened] == [1]


@pytest.mark.tier("full")
def test_a_worker_with_another_file_is_followed(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """One new generation for each new file. One that the flow has had before is older, until it is applied."""
    crew = crew_of(make_copying, target)
    with crew.copying.writing():
        first = crew.join()
        first.wait_event("lane_started", lane=LANES - 1)
        crew.copying.file.write(lanes=2, commit={"linger_ms": 5})
        second = crew.join()
        first.wait_event("file_is_older", generation=2, differs=["commit.linger_ms", "lanes"])
        for worker in (first, second):
            worker.wait_event("lane_started", generation=2)
        crew.copying.file.write(lanes=LANES, commit={"linger_ms": DEFAULT})
        third = crew.join()
        third.wait_event("file_is_older", generation=2)
        crew.wait_shared(lanes=2)
        code, applied = crew.copying.said("apply")
        assert code == 0
        assert (applied["generation"], applied["opened"], applied["workers"]) == (3, True, 3)
        assert applied["differs"]["lanes"] == {"before": "2", "after": str(LANES)}
        for worker in (first, second, third):
            worker.wait_event("lane_started", generation=3)
        crew.wait_shared()
        assert crew.copying.said("apply")[1]["opened"] is False
    crew.finish()
    opened = [event for worker in crew.ended for event in worker.seen("generation_opened")]
    assert [(event["generation"], event["lanes"]) for event in opened] == [(1, LANES), (2, 2)]


@pytest.mark.tier("full")
def test_idle_workers_follow_another_file_too(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """None of them is fenced on its way, since there is no record, and the next discovery is an hour away."""
    crew = crew_of(make_copying, target)
    crew.copying.file.write(limits={"discovery_interval_ms": 3_600_000})
    first = crew.join()
    first.wait_event("lane_started", lane=LANES - 1)
    crew.copying.file.write(lanes=2)
    second = crew.join()
    for worker in (first, second):
        worker.wait_event("lane_started", generation=2)
    crew.wait_shared(lanes=2)
    crew.copying.load.mixed(100)
    crew.finish()


def test_a_restarted_worker_waits_for_no_session(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """The group still has the killed process: its lanes are opened before that one is expelled."""
    crew = crew_of(make_copying, target)
    crew.copying.load.mixed(200)
    crew.join().wait_event("committed")
    crew.kill(crew.alive[0])
    crew.copying.load.mixed(200)
    again = crew.join()
    again.wait_event("committed")
    assert again.seen("lanes_opened_early"), again.tail()
    assert not again.seen("lanes_assigned"), again.tail()
    crew.finish()


@pytest.mark.tier("full")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.timeout(900)
def test_any_schedule_loses_and_doubles_nothing(make_copying: MakeCopying, target: BrokerHandle, seed: int) -> None:
    print(f"EOS_WORKERS_SEEDS={seed}")
    crew = crew_of(make_copying, target, seed)
    with crew.copying.writing():
        crew.join().wait_event("committed")
        for _ in range(FAULTS):
            crew.strike()
        if not crew.alive:
            crew.join().wait_event("committed")
        crew.wait_followed()
    crew.finish()
    opened = [event for worker in crew.ended for event in worker.seen("generation_opened")]
    assert len(opened) <= crew.proposed_max + crew.applied, opened
