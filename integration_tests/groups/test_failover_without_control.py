"""The control topic of a flow is lost, which was failed over once, or is still: commands say so, and the topic is made
anew without anything being copied that is failed over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_failover_topics import QUICK, Other
from integration_tests.harness import clients
from integration_tests.harness.copying import ASKED_S_MAX, Copying
from integration_tests.harness.failing_over import asked, failover
from replicator.model.names import claims_topic, control_topic
from tests.running.users_packages import users_packages

pytestmark = pytest.mark.tier("long", kafka="long")

BAD_USAGE, INCIDENT, UNWRITTEN = 2, 4, 120
LOST = "control_topic_lost"


def said(copying: Copying, *words: str) -> tuple[int, str]:
    """Exit code and all that a command says."""
    done = started(copying, words, subprocess.PIPE)
    told, wrong = done.communicate(timeout=ASKED_S_MAX)
    return done.returncode, (told + wrong).replace("\n", " ")


def started(copying: Copying, words: Sequence[str], stdout: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cli.main", *words, "-c", str(copying.file.path)]
    environment = {**os.environ, **users_packages()}
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)


def rebuild(copying: Copying, *words: str) -> tuple[int, str]:
    return said(copying, "rebuild-control", "--yes-i-mean", copying.name, *words)


def lose_control(copying: Copying) -> None:
    clients.delete_topic(copying.target, control_topic(copying.name))


def copied(copying: Copying, records: int = 100) -> None:
    worker = copying.running()
    copying.load.mixed(records)
    copying.wait_copied()
    copying.wait_positions()
    assert worker.stop() == 0, worker.tail()


def test_commands_say_that_it_is_lost_and_not_that_the_flow_has_never_run(make_copying: MakeCopying) -> None:
    copying = make_copying()
    code, told = said(copying, "pause")
    assert (code, "has never run" in told) == (BAD_USAGE, True), told
    done = asked(copying, "--show")
    assert (done.returncode, "never failed over" in done.stderr) == (BAD_USAGE, True), done.stderr
    copied(copying)
    lose_control(copying)
    yes = ("--yes-i-mean", copying.name)
    for words in (
        ("pause",), ("resume",), ("rate", "--reset"), ("apply",), ("failover", "--show"), ("failover", "--rehearse"),
        ("failover", *yes), ("failover", "--undo", *yes), ("failover", "--topics", copying.topic, *yes),
    ):  # fmt: skip
        code, told = said(copying, *words)
        assert (code, LOST in told, "rebuild-control" in told, "never" in told) == (INCIDENT, True, True, False), told
    assert "No row of a verdict is kept" in said(copying, "failover", "--show")[1]
    assert control_topic(copying.name) not in clients.topics(copying.target)


def test_a_flow_of_which_both_topics_are_gone_has_run(make_copying: MakeCopying) -> None:
    copying = make_copying()
    copied(copying, 20)
    for topic in (control_topic(copying.name), claims_topic(copying.name)):
        clients.delete_topic(copying.target, topic)
    for words in (("failover", "--rehearse"), ("pause",), ("apply",)):
        code, told = said(copying, *words)
        assert (code, "claims_topic_lost" in told, "never" in told) == (INCIDENT, True, False), told
        assert f"the group {copying.group} has" in told


def test_a_flow_that_is_failed_over_stays_so(make_copying: MakeCopying) -> None:
    copying = make_copying()
    copied(copying)
    generation = failover(copying)[1]["generation"]
    lose_control(copying)
    code, told = said(copying, "failover", "--show")
    assert (code, LOST in told) == (INCIDENT, True), told
    assert f"by generation {generation} (topic {copying.topic}); whether it was undone isn't known" in told
    code, told = rebuild(copying)
    assert (code, "--failed-over" in told) == (1, True), told
    assert rebuild(copying, "--failover-was-undone", "--failed-over")[0] == BAD_USAGE
    code, told = rebuild(copying, "--failed-over")
    assert (code, "nothing is copied until failover --undo" in told) == (0, True), told

    code, told = said(copying, "failover", "--show")
    assert (code, "has no note of a failover" in told, f"generation {generation}" in told) == (INCIDENT, True, True)
    before = copying.target_ends()
    worker = copying.running_frozen()
    copying.load.mixed(50)
    copying.wait_stable()
    assert copying.target_ends() == before
    assert failover(copying)[1]["generation"] > generation
    assert failover(copying, "--show")[1]["stands"] is True
    assert failover(copying, "--undo")[0] == 0
    copying.finish(worker)


def test_topics_that_are_failed_over_stay_so_and_the_others_go_on(make_copying: MakeCopying) -> None:
    copying = make_copying(limits=QUICK)
    other = Other(copying)
    copied(copying)
    failover(copying, "--topics", copying.topic)
    lose_control(copying)
    code, told = rebuild(copying, "--failed-over-topics", "nope")
    assert (code, "never copied a source topic 'nope'" in told) == (BAD_USAGE, True), told
    code, told = rebuild(copying, "--failed-over-topics", copying.topic)
    assert (code, f"until failover --undo --topics: {copying.topic}" in told) == (0, True), told
    worker = copying.running("", "--shared")
    before = copying.target_ends()
    copying.load.mixed(50)
    other.goes_on()
    assert copying.target_ends() == before
    assert failover(copying, "--undo", "--topics", copying.topic)[0] == 0
    copying.finish(worker)
    other.assert_exact()


@pytest.mark.parametrize("reader", ["full", "left"])
def test_it_is_made_anew_though_nobody_can_read_what_is_said(make_copying: MakeCopying, reader: str) -> None:
    """The question has what it is about to do: no output can keep it from being done, or deny that it was."""
    copying = make_copying(partitions=1)
    copied(copying)
    lose_control(copying)
    if reader == "full":
        writing = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, writing = os.pipe()
        os.close(reading)
    process = started(copying, ["rebuild-control", "--yes-i-mean", copying.name], writing)
    os.close(writing)
    _, wrong = process.communicate(timeout=ASKED_S_MAX)
    assert process.returncode == UNWRITTEN, wrong
    assert control_topic(copying.name) in clients.topics(copying.target), wrong
    copied(copying)
    copying.assert_exact()
