"""Some topics of a flow are failed over: whatever runs it copies the others, and keeps the positions of these."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from subprocess import Popen

import pytest
from confluent_kafka import Producer

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY, all_there, begun, wait_offsets
from integration_tests.harness import clients
from integration_tests.harness.background import repeated
from integration_tests.harness.compare import assert_exact, wait_key
from integration_tests.harness.copying import PACE_S, PARTITIONS, Copying
from integration_tests.harness.failing_over import asked, failover, started
from integration_tests.harness.group_reading import consume
from integration_tests.harness.jobs import backfill
from integration_tests.harness.load import Load
from replicator.failover.steps import DONE, RUN, UNDO, FailoverStep
from replicator.model import checkpoint
from replicator.model.errors import FlowFrozen
from replicator.model.names import groups_topic
from tests.budget import budget

HOOKS = {FailoverStep.ON_FREEZE, FailoverStep.ON_VERDICT, FailoverStep.ON_UNDO}
RUN_STEPS = [*(step.failpoint for step in RUN if step not in {FailoverStep.KEEP, *HOOKS}), "failover_write", DONE]
UNDO_STEPS = [*(step.failpoint for step in UNDO if step not in HOOKS), DONE]
QUICK = {"recommit_interval_ms": 1_000, "discovery_interval_ms": 200}


class Other:
    """A second topic of the flow, which goes on."""

    def __init__(self, copying: Copying) -> None:
        self.copying, self.topic = copying, f"{copying.name}.other"
        self.copy = f"{self.topic}.copy"
        clients.create_topic(copying.source, self.topic, 1)
        copying.file.write(topics=[copying.topic, self.topic])
        self.load = Load(copying.source, self.topic, 1, seed=5)

    def goes_on(self) -> None:
        """What is written now is copied."""
        self.load.mixed(60)
        self.load.finish()
        wait_key(self.copying.target, self.copy, 1, self.load.last)

    def assert_exact(self) -> None:
        """The copy is."""
        assert_exact(self.copying.source, self.topic, self.copying.target, self.copy, 1)


def committed_ms(copying: Copying) -> int:
    """When the position of the first partition was committed last."""
    found = clients.committed(copying.target, copying.group, copying.copy, 0)
    return checkpoint.decode(found.metadata or "").committed_ms


def killed(process: Popen[str]) -> None:
    """It has reached its failpoint."""
    _, said = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, said


def states(copying: Copying) -> dict[str, set[str]]:
    """By source topic, as `status` says."""
    _, flow = copying.asked("status")
    found: dict[str, set[str]] = {}
    for row in flow["partitions"]:
        found.setdefault(row["source_topic"], set()).add(row["state"])
    return found


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("seed", range(budget(1, 5)))
def test_a_topic_is_failed_over_under_load_and_given_back(
    make_copying: MakeCopying, unique: Callable[[str], str], seed: int
) -> None:
    draw, group = random.Random(seed), unique("part")
    copying = make_copying(groups=EVERY, limits=QUICK)
    other = Other(copying)
    copying.load.mixed(300)
    begun(copying, group, 100)
    worker = copying.running()
    with copying.writing(60), repeated(partial(other.load.mixed, 30), PACE_S):
        wait_offsets(copying, group, all_there)
        code, verdict = failover(copying, "--topics", copying.topic)
        assert code in (0, 1)
        assert verdict["topics"] == [copying.topic]
        assert {row["source_topic"] for row in verdict["partitions"]} == {copying.topic}
        stands, copies = copying.wait_stable(), copying.target_ends()
        assert [row["position"] for row in verdict["partitions"]] == stands
        for options, changes in (
            ((), {}),
            (("--take-over",), {"lanes": 3}),
            ((), {"lanes": 2}),
            (("--shared",), {"lanes": 1}),
        ):
            worker.kill()
            copying.file.write(**changes)
            worker = copying.run("", *options)
            time.sleep(draw.uniform(0.0, 2.0))
            if draw.random() < 0.5:
                worker.wait_event("recommitted")
    other.goes_on()
    consumed = consume(copying.target, group, copying.copy, PARTITIONS, 5)
    assert consumed, "the group belongs to who consumes at the target"
    moved = clients.committed(copying.target, group, copying.copy, 0).offset
    before_ms = committed_ms(copying)
    worker.wait_event("recommitted", after=worker.mark())
    worker.wait_event("recommitted", after=worker.mark())
    assert committed_ms(copying) > before_ms, "it would expire"
    assert clients.committed(copying.target, group, copying.copy, 0).offset == moved
    assert (copying.wait_stable(), copying.target_ends()) == (stands, copies), "not one record of it was copied"
    assert states(copying)[copying.topic] == {"failed_over"}
    assert groups_topic(copying.name) in clients.topics(copying.target)
    job, _ = backfill(copying, topics=frozenset({copying.topic}), take_over=True)
    with pytest.raises(FlowFrozen, match=copying.topic):
        job.check()
    code, whole = failover(copying)
    assert {row["source_topic"] for row in whole["partitions"]} == {copying.topic, other.topic}
    assert asked(copying, "--topics", other.topic).returncode == 5, "the whole flow is failed over"
    worker.wait_event("failed_over")
    assert asked(copying, "--undo").returncode == 0
    worker.wait_event("failover_undone")
    other.goes_on()
    assert (copying.wait_stable(), copying.target_ends()) == (stands, copies)
    assert asked(copying, "--undo").returncode == 2, "no whole flow is"
    code, undone = failover(copying, "--undo", "--topics", copying.topic)
    assert code == 0
    assert undone["topics"] == [copying.topic]
    copying.finish(worker)
    other.assert_exact()


@pytest.mark.tier("long", kafka="long")
def test_a_part_that_is_killed_at_any_step_goes_on_from_there(make_copying: MakeCopying) -> None:
    copying = make_copying(limits=QUICK)
    other = Other(copying)
    copying.load.mixed(200)
    worker = copying.running("", "--shared")
    copying.wait_copied()
    part = ("--topics", copying.topic)
    for step in RUN_STEPS:
        killed(started(copying, *part, failpoints=f"{step}@1=kill"))
    code, verdict = failover(copying, *part)
    assert verdict["topics"] == [copying.topic]
    shown, kept = failover(copying, "--show")
    assert (shown, kept["stands"], kept["sha256"]) == (code, True, verdict["sha256"])
    stands, copies = copying.wait_stable(), copying.target_ends()
    copying.load.mixed(100)
    other.goes_on()
    assert (copying.wait_stable(), copying.target_ends()) == (stands, copies)
    for step in UNDO_STEPS:
        killed(started(copying, "--undo", *part, failpoints=f"{step}@1=kill"))
    assert asked(copying, "--undo", *part).returncode == 0
    assert failover(copying, "--show")[1]["stands"] is False
    copying.finish(worker)
    other.assert_exact()


@pytest.mark.tier("long", kafka="long")
def test_a_part_that_splits_a_coupled_set_must_be_named_and_a_name_that_is_misspelt_is_told(
    make_copying: MakeCopying, unique: Callable[[str], str]
) -> None:
    copying = make_copying(partitions=1)
    other = Other(copying)
    producer = Producer({"bootstrap.servers": copying.source, "transactional.id": unique("tying")})
    producer.init_transactions(60)
    producer.begin_transaction()
    for topic in (copying.topic, other.topic):
        producer.produce(topic, b"tied", partition=0)
    producer.commit_transaction(60)
    worker = copying.running("", "--shared")
    clients.wait_value(copying.target, other.copy, 0, b"tied")
    clients.wait_value(copying.target, copying.copy, 0, b"tied")
    for options, said in (
        (("--topics", f"{copying.topic}x"), f"did you mean '{copying.topic}'"),
        (("--topics", copying.topic), f"--split {copying.topic}"),
        (("--topics", copying.topic, "--rehearse"), other.topic),
    ):
        refused = asked(copying, *options)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    assert "failed_over" not in states(copying)[copying.topic]
    split = ("--topics", copying.topic, "--split", copying.topic)
    assert failover(copying, *split, "--rehearse")[1]["rehearsed"] is True
    assert failover(copying, *split)[1]["topics"] == [copying.topic]
    assert states(copying)[copying.topic] == {"failed_over"}
    assert "was failed over" in json.dumps(copying.asked("plan")[1])
    assert failover(copying, "--topics", other.topic)[1]["topics"] == [other.topic], "what it is tied to has gone"
    assert failover(copying, "--undo", "--topics", f"{copying.topic},{other.topic}")[0] == 0
    assert worker.stop() == 0
    other.assert_exact()
