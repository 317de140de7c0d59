"""`adopt-mm2`, killed or stopped wherever it writes or decides anything, and run again: nothing is lost, and nothing is
copied again by us.

What MirrorMaker 2 would have written is written by hand (`harness.mirrored`), so what it has copied is known exactly.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration_tests.conftest import Pair
from integration_tests.harness import clients, frames
from integration_tests.harness.mirrored import ALIAS, PATIENT, At, Content, Mirrored
from integration_tests.harness.processes import wait_until
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.harness.replicator import FAILPOINTS, FlowFile, Replicator
from replicator.failpoints import STEPS as ALL_STEPS
from tests.running.users_packages import users_packages

pytestmark = [pytest.mark.tier("long"), pytest.mark.timeout(1_800)]
ENDED_S_MAX = 180.0
DONE, REFUSED, STOPPED, HELD = 0, 1, 4, 5
STEPS = tuple(step for step in ALL_STEPS if "position_set" in step or step == "adoption_planned")
"""In the order in which they are reached."""
WRITES = {
    "CreateTopics": 2,
    "InitProducerId": 6,
    "AddPartitionsToTxn": 5,
    "AddOffsetsToTxn": 1,
    "Produce": 6,
    "TxnOffsetCommit": 1,
    "EndTxn": 5,
}
"""All that an adoption asks of the target that changes anything there: how often."""
READS = {"api_versions", "metadata", "describe_cluster", "find_coordinator", "list_offsets", "fetch"}
READS |= {"list_groups", "describe_groups", "consumer_group_describe", "offset_fetch", "describe_configs"}
SEEDS = range(6)
COMPARED = 20


class Adopting:
    """One process of `adopt-mm2`."""

    def __init__(self, world: Mirrored, file: Path, failpoints: str = "") -> None:
        command = [sys.executable, "-m", "cli.main", "adopt-mm2", "-c", str(file), "--flow", world.name, "--json"]
        self._process = subprocess.Popen(
            [*command, "--yes-i-mean", world.name, *world.words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**users_packages(), FAILPOINTS: failpoints},
        )

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        assert self._process.wait(ENDED_S_MAX) == -signal.SIGKILL, "it had ended before it was killed"

    def killed_after(self, seconds: float) -> bool:
        """SIGKILL after a time; whether it still ran."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return True
        return False

    def wait_stopped(self) -> None:
        """Until its failpoint has stopped it."""
        state = Path(f"/proc/{self._process.pid}/stat")

        def stopped() -> bool:
            return state.read_text().rpartition(")")[2].split()[0] == "T"

        wait_until(stopped, "it has come to its step", str)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def ended(self) -> tuple[int, dict[str, Any], str]:
        """Exit code, JSON and stderr."""
        out, said = self._process.communicate(timeout=ENDED_S_MAX)
        return self._process.returncode, json.loads(out) if out else {}, said


class Takeovers:
    """Some flows in one file, each of which is to go on where its own MirrorMaker 2 has ended."""

    def __init__(self, make: Callable[[bool], Mirrored]) -> None:
        self._make = make
        self.worlds: list[Mirrored] = []
        self._before: dict[At, list[Content]] = {}

    @property
    def file(self) -> Path:
        """The file with all of them."""
        return self.worlds[0].file.path

    def world(self) -> Mirrored:
        """One more, which its MirrorMaker 2 has left; in turn one that noted its offsets, and one whose records alone
        tell."""
        made = self._make(len(self.worlds) % 2 == 0)
        if self.worlds:
            self.worlds[0].file.include(made.file)
        self.worlds.append(made)
        return made

    def begin(self, world: Mirrored, failpoints: str = "") -> Adopting:
        """An adoption that has been started."""
        return Adopting(world, self.file, failpoints)

    def adopt(self, world: Mirrored) -> tuple[int, str]:
        """Adopt: done exactly as MirrorMaker 2 has left it, or refused since it was done before; exit code and what was
        said."""
        code, done, said = self.begin(world).ended()
        if code == DONE:
            found = {(row["topic"], row["partition"]): row["position"] for row in done["partitions"]}
            assert found == world.positions
        else:
            assert (code, "has begun to copy" in said) == (REFUSED, True), said
        return code, said

    def assert_adopted(self) -> None:
        """The positions are those behind what was copied, all of them, and say that they were adopted."""
        command = [sys.executable, "-m", "cli.main", "position", "show", "-c", str(self.file), "--json"]
        shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        found = {flow["flow"]: flow for flow in shown["flows"]}
        for world in self.worlds:
            flow = found[world.name]
            assert {
                (row["topic"], row["partition"]): row["offset"]
                for row in flow["adoptions"]
                if row["incident"] == "adopt_mm2"
            } == world.positions
            assert len(flow["adoptions"]) == len(world.positions), "adopted once"

    def run(self) -> Replicator:
        """A worker of all flows."""
        for world in self.worlds:
            for at in world.partitions:
                self._before.setdefault(at, world.target_records(at))
        return Replicator(self.worlds[0].file)

    def wait_copied(self, worker: Replicator) -> None:
        """Until a record written now to each partition is on the target."""
        for world in self.worlds:
            for at in world.partitions:
                world.write(at)
        for world in self.worlds:
            for at in world.partitions:
                self.wait_last(worker, world, at)

    def wait_last(self, worker: Replicator, world: Mirrored, at: At) -> None:
        """Until the last record of a partition is on the target."""
        last = world.source_records(at)[-1]
        wait_until(lambda: world.target_records(at)[-1:] == [last], f"{at} is copied", worker.tail)

    def assert_exact(self) -> None:
        """The flows have copied all that MirrorMaker 2 had not, and nothing of what it had."""
        for world in self.worlds:
            for at in world.partitions:
                here, there = world.source_records(at), world.target_records(at)
                before = self._before[at]
                assert there[: len(before)] == before
                ours, copied = there[len(before) :], world.copied[at]
                assert [it for it in here[copied:] if it not in ours] == [], f"lost of {at}"
                assert [it for it in ours if it in here[:copied]] == [], f"copied again of {at}"
                assert ours == here[copied:], f"doubled or reordered by us in {at}"

    def assert_goes_on(self) -> None:
        """All is adopted, once; the flows copy on, and there is nothing more to adopt, while they run and after it."""
        self.assert_adopted()
        worker = self.run()
        try:
            self.wait_copied(worker)
            code, _, said = self.begin(self.worlds[0]).ended()
            assert code == HELD, said
            assert worker.stop() == 0, worker.tail()
        finally:
            worker.close()
        self.assert_exact()
        assert self.adopt(self.worlds[-1])[0] == REFUSED
        self.assert_adopted()


@pytest.fixture
def takeovers(brokers: Pair, proxy: Proxy, tmp_path: Path, unique: Callable[[str], str]) -> Takeovers:
    def make(exactly_once: bool) -> Mirrored:
        addresses = brokers.source.bootstrap, brokers.target.bootstrap, proxy.bootstrap
        made = Mirrored(tmp_path, unique("taken"), *addresses, exactly_once=exactly_once)
        made.mirror()
        return made

    return Takeovers(make)


@pytest.mark.parametrize("api", WRITES)
def test_killed_before_and_after_each_write(takeovers: Takeovers, proxy: Proxy, api: str) -> None:
    """Before it: the request is lost. After it: the target has done it, and its reply is lost."""
    for nth in range(1, WRITES[api] + 1):
        for side in Side:
            world = takeovers.world()
            lost = proxy.rule(api, side, Action.DROP, nth=nth)
            first = takeovers.begin(world)
            lost.wait_hit()
            first.kill()
            proxy.clear()
            takeovers.adopt(world)
    takeovers.assert_goes_on()


def test_no_write_is_left_out(takeovers: Takeovers, proxy: Proxy) -> None:
    """A busy coordinator may be asked more than once, so that real Kafka sees more of some."""
    assert takeovers.adopt(takeovers.world())[0] == DONE
    asked = {api: proxy.count(api) for api in WRITES}
    assert all(asked[api] >= count for api, count in WRITES.items()), asked
    others = {api for _, api in proxy.asked()} - {frames.api_name(frames.api_key(api)) for api in WRITES}
    assert others <= READS


def test_killed_at_each_step(takeovers: Takeovers) -> None:
    codes = {}
    for step in STEPS:
        world = takeovers.world()
        code, _, said = takeovers.begin(world, f"{step}@1=kill").ended()
        assert code == -signal.SIGKILL, said
        codes[step] = takeovers.adopt(world)[0]
    done = {"after_position_set", "position_set_handed_over"}
    assert codes == {step: REFUSED if step in done else DONE for step in STEPS}
    takeovers.assert_goes_on()


@pytest.mark.parametrize("steps", [STEPS[:5], STEPS[5:]], ids=lambda steps: steps[0])
def test_a_second_operator_takes_over_at_each_step_and_the_first_goes_on_later(
    takeovers: Takeovers, steps: Sequence[str]
) -> None:
    """He is done, and the flow copies already, when the first one wakes up."""
    first: dict[str, Adopting] = {}
    second: dict[str, int] = {}
    for step in steps:
        world = takeovers.world()
        first[step] = takeovers.begin(world, f"{step}@1=stop")
        first[step].wait_stopped()
        second[step] = takeovers.adopt(world)[0]
    worker = takeovers.run()
    try:
        takeovers.wait_copied(worker)
        for step, process in first.items():
            process.resume()
            code, _, said = process.ended()
            assert (code in (REFUSED, HELD)) is (second[step] == DONE), f"{step}: {said}"
            assert code in (DONE, REFUSED, HELD), said
        takeovers.wait_copied(worker)
        assert worker.stop() == 0, worker.tail()
    finally:
        worker.close()
    takeovers.assert_exact()
    takeovers.assert_adopted()


def test_the_flow_was_started_before_it_was_run_again(takeovers: Takeovers) -> None:
    """It copies the partitions of which the target has nothing, and stops at all others, which are adopted then."""
    for step in STEPS[: STEPS.index("after_position_set")]:
        code, _, said = takeovers.begin(takeovers.world(), f"{step}@1=kill").ended()
        assert code == -signal.SIGKILL, said
    worker = takeovers.run()
    try:
        for world in takeovers.worlds:
            for topic, number in world.partitions:
                if (topic, number) in world.positions:
                    worker.wait_event("incident", name="target_not_empty", topic=topic, partition=number)
                else:
                    takeovers.wait_last(worker, world, (topic, number))
        assert worker.stop() == STOPPED, worker.tail()
    finally:
        worker.close()
    assert [takeovers.adopt(world)[0] for world in takeovers.worlds] == [DONE] * len(takeovers.worlds)
    takeovers.assert_goes_on()


def test_two_operators_at_once(takeovers: Takeovers) -> None:
    for _ in range(4):
        world = takeovers.world()
        both = [takeovers.begin(world), takeovers.begin(world)]
        codes = [process.ended()[0] for process in both]
        assert codes.count(DONE) <= 1, codes
        assert set(codes) <= {DONE, REFUSED, HELD}, codes
        assert takeovers.adopt(world)[0] == (REFUSED if DONE in codes else DONE), codes
    takeovers.assert_goes_on()


def test_killed_at_times_drawn(takeovers: Takeovers) -> None:
    """Each time within what the first one has taken, and again until one is through."""
    began = time.monotonic()
    takeovers.adopt(takeovers.world())
    took_s = time.monotonic() - began
    for seed in SEEDS:
        chance = random.Random(seed)
        world = takeovers.world()
        killed = [takeovers.begin(world).killed_after(chance.uniform(0.3, 1.0) * took_s) for _ in range(2)]
        code, said = takeovers.adopt(world)
        assert code == DONE or "has begun to copy" in said, (seed, killed)
    takeovers.assert_goes_on()


@pytest.mark.parametrize("again", [COMPARED // 2, 2 * COMPARED], ids=["fewer_than_are_compared", "more"])
def test_it_was_killed_while_it_copied_again_from_far_back(
    brokers: Pair, tmp_path: Path, unique: Callable[[str], str], again: int
) -> None:
    """The furthest copy is among the first records that are compared, or before all of them."""
    source, target, name = brokers.source.bootstrap, brokers.target.bootstrap, unique("again")
    file = FlowFile(tmp_path, name, source, target, topics=[name], rename=f"{ALIAS}.{{topic}}", limits=PATIENT)
    for bootstrap, topic, numbers in (
        (source, name, range(600)),
        (target, f"{ALIAS}.{name}", (*range(500), *range(again))),
    ):
        clients.create_topic(bootstrap, topic)
        writer = clients.producer(bootstrap)
        for number in numbers:
            writer.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number)
        assert writer.flush(clients.TIMEOUT_S) == 0
    command = [sys.executable, "-m", "cli.main", "adopt-mm2", "-c", str(file.path), "--json", "--alias", ALIAS]
    command += ["--dry-run", "--compare", str(COMPARED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=users_packages())
    assert done.returncode == DONE, done.stderr
    (row,) = json.loads(done.stdout)["partitions"]
    assert (row["position"], row["doubled"]) == (500, [[0, again]])
