"""Workers of one flow, and what can happen to them: they join, leave, die and stand still, get other files, and their
target's brokers die. Everything is drawn from a seed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.lane_history import Began, Gone, LaneHistory
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import DEFAULT, Replicator
from replicator.model.names import workers_group
from replicator.workers.early import parsed

LANES, PARTITIONS = 4, 8
WORKERS_MAX = 3
FAULTS = 10
START_MS_MAX = 120_000
ORPHANED_S_MAX, TAKEN_MAX = 3.0, 2
"""How long a lane may be nobody's beyond a session, and how often it may change hands after each disturbance."""
START_S = 1.0
"""What a worker takes to connect on two cores that do nothing else."""
AT_THE_START = ("fenced", "before_end_claims", "claimed")
"""Steps that a worker may go through for one lane only, and once."""
STEPS = (*AT_THE_START, "before_send", "before_flush", "before_offsets", "before_end_txn", "after_end_txn")

Strike = Callable[[random.Random], str]
"""Something that happens to the target; returns what it was."""


class Crew:
    """The workers of one flow, and what can happen to them."""

    def __init__(self, copying: Copying, seed: int, session_s: float, *of_the_target: Strike) -> None:
        """`of_the_target`: what may happen to it."""
        self._session_s = session_s
        self.copying, self._random, self._of_the_target = copying, random.Random(seed), of_the_target
        self.alive: list[Replicator] = []
        self.ended: list[Replicator] = []
        self._began_s: list[float] = []  # wall clock, of each disturbance
        self._joined: list[tuple[Replicator, float]] = []
        self._gone_s: list[tuple[float, Replicator, float]] = []
        self._away_s: list[tuple[float, float]] = []  # when the target did not run, if it has one broker only
        self._told = 0
        self._files: list[dict[str, Any]] = [{"lanes": LANES, "commit": {"linger_ms": DEFAULT}}]
        self.proposed_max, self.applied = 1, 0

    def join(self, failpoints: str = "", environment: Mapping[str, str] | None = None) -> Replicator:
        """Start a worker."""
        began_s = time.time()
        self._began_s.append(began_s)
        worker = self.copying.run(failpoints, "--shared", environment=environment)
        self.alive.append(worker)
        self._joined.append((worker, began_s))
        return worker

    def leave(self, worker: Replicator) -> None:
        """Stop a worker as a rolling restart does: once it hears signals."""
        worker.wait_event("connecting")
        self._began_s.append(time.time())
        assert worker.stop() == 0, worker.tail()
        self._gone(worker, time.time())

    def kill(self, worker: Replicator) -> None:
        """SIGKILL."""
        now_s = time.time()
        self._began_s.append(now_s)
        worker.kill()
        self._gone(worker, now_s)

    def _gone(self, worker: Replicator, at_s: float) -> None:
        self._gone_s.append((at_s, worker, float("inf")))
        self.alive.remove(worker)
        self.ended.append(worker)

    def stop(self) -> None:
        """Stop all of them, one after the other."""
        for worker in list(self.alive):
            self.leave(worker)

    def held(self) -> list[set[int]]:
        """The lanes that the group has given to each worker that is alive, by what each has logged last."""
        return [lanes or set() for lanes in lanes_given(self.alive)]

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

    def schedule(self) -> None:
        """Let all that is drawn happen while records are written; nothing may be lost, doubled or reordered, and a
        generation be opened by nobody's file. A worker that starts while a broker restarts waits for it, however busy
        the machine is: nobody starts one that has given up again."""
        self.copying.file.write(limits={"connect_timeout_ms": START_MS_MAX})
        with self.copying.writing():
            self.join().wait_event("committed")
            for _ in range(FAULTS):
                self.strike()
            if not self.alive:
                self.join().wait_event("committed")
            self.wait_followed()
        self.finish()
        opened = [event for worker in self.ended for event in worker.seen("generation_opened")]
        assert len(opened) <= self.proposed_max + self.applied, opened
        self._check_lanes()

    def history(self) -> LaneHistory:
        """Who ran which lane when. Once all have ended."""
        number = {id(worker): at for at, worker in enumerate(self.ended)}
        began = [
            Began(_at_s(event), event["generation"], event["lane"], at)
            for at, worker in enumerate(self.ended)
            for event in worker.seen("lane_started")
        ]
        gone = [Gone(at_s, number[id(worker)], until_s) for at_s, worker, until_s in self._gone_s]
        return LaneHistory(began, gone, sorted(self._began_s), self._session_s, self._away_s)

    def _check_lanes(self) -> None:
        """A lane that lost its worker had another one in a session and three seconds, twice that where something else
        happened meanwhile, and so on; and for each thing that happened it changed hands twice at most."""
        history, longest, beyond_s = self.history(), 0.0, ORPHANED_S_MAX * self._slowness()
        for nobodys_s, disturbances, lane in history.orphaned():
            longest = max(longest, nobodys_s)
            assert nobodys_s <= (self._session_s + beyond_s) * (1 + disturbances), f"{lane}: {nobodys_s:.1f} s"
        for (generation, number), (taken, disturbances) in history.taken_over().items():
            assert taken <= TAKEN_MAX * (1 + disturbances), f"lane {number} of generation {generation}: {taken} times"
        print(f"a lane was nobody's for {longest:.1f} s at most, {beyond_s:.1f} s are allowed beyond a session")

    def _slowness(self) -> float:
        """How many times as long as on a machine that does nothing else the slowest worker took until it connected."""
        connected = [(_at_s(found[0]), began_s) for it, began_s in self._joined if (found := it.seen("connecting"))]
        return max(1.0, *((at_s - began_s) / START_S for at_s, began_s in connected))

    def strike(self) -> None:
        """Draw something and let it happen."""
        happens = self._random.choices(
            (
                self._join,
                self._leave,
                self._kill,
                self._kill_at_a_step,
                self._stand_still,
                self._strike_the_target,
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
        now_s = time.time()
        self._began_s.append(now_s)
        self._gone(doomed, now_s)
        self._tell(f"one joins and is killed at {step} {number}")

    @staticmethod
    def _has_none(worker: Replicator) -> bool:
        return lanes_given([worker]) == [set()]

    def _stand_still(self) -> None:
        worker, long = self._random.choice(self.alive), self._random.random() < 0.5
        if len(self.alive) < 2:
            return
        long = self.stand_still(worker, long=long)
        self._tell("one stands still for " + ("longer" if long else "less") + " than a session")

    def stand_still(self, worker: Replicator, *, long: bool) -> bool:
        """Suspend a worker for less or for more (`long`) than a session: then its lanes are another worker's. Return
        whether it was for more: nobody gets the lanes of one that is no member, since it has just started, or is
        between two generations."""
        others = [other for other in self.alive if other is not worker]
        marks = [other.mark() for other in others]
        began_s = time.time()
        self._began_s.append(began_s)
        worker.suspend()
        if long := long and self._is_member(worker):
            wait_until(
                lambda: any(it.seen("lanes_assigned", after=at) for it, at in zip(others, marks, strict=True)),
                "its lanes are given to another worker",
                others[0].tail,
            )
        self._gone_s.append((began_s, worker, time.time()))
        worker.resume()
        return long

    def _is_member(self, worker: Replicator) -> bool:
        """Whether the group has a worker now. Its log doesn't say: it leaves the group after `generation_over`, and is
        given lanes again only once it has joined with the number of lanes that is open then."""
        members = clients.group_members(self.copying.target, workers_group(self.copying.name))
        return any(found is not None and found.pid == worker.pid for found in map(parsed, members))

    def _strike_the_target(self) -> None:
        began_s = time.time()
        self._began_s.append(began_s)
        said = self._random.choice(self._of_the_target)(self._random)
        if "," not in self.copying.target:
            self._away_s.append((began_s, time.time()))
        self._tell(said)

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
        self._began_s.append(time.time())
        code = self.copying.killed_after("apply", lives_s)
        self.applied += 1
        assert code in ((0,) if lives_s is None else (0, -signal.SIGKILL)), code
        self._tell(f"the file is applied, with exit code {code}")


def lanes_given(workers: Sequence[Replicator], since: Sequence[int] | None = None) -> list[set[int] | None]:
    """The lanes that the group has given to each worker, by what each has logged last; None of one that was given none
    yet. `since`: a mark in each one's log."""
    marks = since or [0] * len(workers)
    given = [worker.seen("lanes_assigned", after=mark) for worker, mark in zip(workers, marks, strict=True)]
    return [set(events[-1]["lanes"]) if events else None for events in given]


def _at_s(event: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()
