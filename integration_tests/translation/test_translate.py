"""`translate` on logs of which everything is known, and for consumers that move: none skips a record, and none reads
more again than was said."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import replicator
from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import ASKED_S_MAX, Copying
from integration_tests.harness.group_reading import begin, consume
from integration_tests.proof.mapped_lane import DAMAGE
from integration_tests.proof.mapped_logs import MappedFlow
from integration_tests.proof.truth import Truth
from replicator.model.partition import Partition
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.translation.translate import Translator, translator

AT_ONCE = 12
CASES = {
    "clean": (),
    "repaired": (*DAMAGE, "repaired"),
    "lost blocks": (*DAMAGE, "lost_block"),
}


def asked(copying: Copying, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    command = [sys.executable, "-m", "cli.main", "translate", "-c", str(copying.file.path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASKED_S_MAX)
    return done.returncode, done.stdout, done.stderr


def wrongs(truth: Truth, offset: int, found: OffsetAnswer) -> Iterator[str]:
    standing = {at: place for at, place in truth.places.items() if place >= truth.target_start}
    if found.offset is None:
        bounds, first = found.translated.bounds, min(truth.source) not in truth.unmapped
        place = min((there for at, there in standing.items() if at >= offset), default=truth.next_target)
        if bounds is None or first or not bounds[0] <= place <= bounds[1]:
            yield f"{offset} has no translation: {found.translated}"
        return
    skipped = [at for at, place in standing.items() if at >= offset and place < found.offset]
    if skipped:
        yield f"{offset} -> {found.offset} skips source offsets {skipped[:5]}"
    if found.translated.again is not None:
        again = sum(at < offset and place >= found.offset for at, place in standing.items())
        if again > found.translated.again:
            yield f"{offset} -> {found.offset} reads {again} again, said {found.translated.again}"


@pytest.mark.tier("extended", kafka="full")
@pytest.mark.parametrize(
    "case", ["repaired", *(pytest.param(case, marks=pytest.mark.tier("full")) for case in ("clean", "lost blocks"))]
)
def test_no_offset_skips_a_record(
    case: str, source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    flow = MappedFlow(source, target, tmp_path, unique("translate"), range(AT_ONCE), CASES[case])
    there = translator(flow.flow, "source")
    back = translator(flow.flow, "target")
    wrong = []
    for number, truth in enumerate(flow.truths):
        at, copy = Partition(flow.topic, number), Partition(flow.copy, number)
        end = clients.stable_end(source.bootstrap, flow.topic, number)
        for offset, found in enumerate(there.answers([OffsetToTranslate(at, n) for n in range(end + 3)])):
            assert found.at == copy
            assert ("ahead" in found.translated.notes) == (offset > max(truth.position, end))
            wrong += [f"{number}: {text}" for text in wrongs(truth, offset, found)]
            if case == "clean" and offset <= max(truth.position, end):
                expected = min((place for at, place in truth.places.items() if at >= offset), default=truth.next_target)
                assert (found.offset, found.exact) == (expected, True)
        wrong += [f"{number}: {text}" for text in backwards(truth, back, copy)]
    assert not wrong, "\n".join(wrong[:20])


def backwards(truth: Truth, back: Translator, copy: Partition) -> Iterator[str]:
    begins = min(truth.places.values(), default=0)  # nothing says that the flow copied nothing before
    first = min(truth.source) not in truth.unmapped
    for offset in range(begins, truth.next_target + 3):
        (found,) = back.answers([OffsetToTranslate(copy, offset)])
        if found.offset is None:
            bounds, wanted = found.translated.bounds, [at for at, there in truth.places.items() if there >= offset]
            if not first and bounds is not None and bounds[0] <= min(wanted, default=truth.position) <= bounds[1]:
                continue
            yield f"target offset {offset} has no translation: {found.translated}"
            continue
        skipped = [at for at, place in truth.places.items() if place >= offset and at < found.offset]
        if skipped:
            yield f"target offset {offset} -> {found.offset} skips source offsets {skipped[:5]}"


@pytest.mark.tier("full")
def test_a_group_goes_on_at_the_other_side_and_comes_back(
    make_copying: MakeCopying, unique: Callable[[str], str]
) -> None:
    """The worker is killed in between: what it aborted has offsets, and is nobody's."""
    copying = make_copying()
    group, topics = unique("billing"), (copying.topic, copying.copy)
    worker = copying.running()
    copying.load.mixed(400)
    worker.wait_event("committed")
    worker.kill()
    copying.load.mixed(400)
    copying.finish(copying.running())
    begin(copying.source, group, [(copying.topic, number, 0) for number in range(copying.partitions)])
    consumed = consume(copying.source, group, topics[0], copying.partitions, 250)
    assert moved(copying, group, copying.target) == 0
    consumed += consume(copying.target, group, topics[1], copying.partitions, 250)
    assert moved(copying, group, copying.source, "--reverse") == 0
    consumed += consume(copying.source, group, topics[0], copying.partitions)
    assert len(consumed) == copying.load.committed
    assert Counter(consumed) == Counter(clients_keys(copying))


def moved(copying: Copying, group: str, to: str, *options: str) -> int:
    """Hand the group over as Kafka's tool would, from what --csv prints; how many records will be read again."""
    code, out, said = asked(copying, "--group", group, "--csv", *options)
    assert code == 0, said
    begin(to, group, [(topic, int(number), int(offset)) for topic, number, offset in csv.reader(out.splitlines())])
    code, out, said = asked(copying, "--group", group, "--json", *options)
    assert code == 0, said
    answers: list[dict[str, Any]] = json.loads(out)["offsets"]
    assert len(answers) == copying.partitions
    assert all(it["exact"] for it in answers), answers
    return sum(it["again"] for it in answers)


def clients_keys(copying: Copying) -> list[bytes]:
    messages = [m for n in range(copying.partitions) for m in clients.read(copying.source, copying.topic, n)]
    return [bytes(message.key() or b"") for message in messages]


@pytest.mark.tier("full")
def test_a_time_a_file_a_single_offset_and_a_program_get_the_same(make_copying: MakeCopying, tmp_path: Path) -> None:
    copying = make_copying()
    copying.load.mixed(300)
    copying.finish(copying.running())
    code, out, said = asked(copying, "--time", "1970-01-01T00:00:00Z", "--json")
    assert code == 0, said
    first = json.loads(out)["offsets"]
    assert [it["from"]["partition"] for it in first] == list(range(copying.partitions))
    assert all(it["exact"] for it in first)
    code, out, said = asked(copying, "--time", "2200-01-01T00:00:00Z", "--json")
    for it in json.loads(out)["offsets"]:
        at = it["from"]["partition"]
        assert it["from"]["offset"] == clients.stable_end(copying.source, copying.topic, at)
        # behind the end there may be a marker, which the position has passed or not
        assert it["to"]["offset"] <= clients.stable_end(copying.target, copying.copy, at)
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{copying.topic},{number},1\n" for number in range(copying.partitions)))
    code, out, said = asked(copying, "--file", str(file), "--json")
    assert code == 0, said
    by_file = [it["to"]["offset"] for it in json.loads(out)["offsets"]]
    code, out, said = asked(copying, "--topic", copying.topic, "--partition", "0", "--offset", "1")
    assert (code, f" {by_file[0]} " in out, "1 exact" in out) == (0, True, True), out
    asked_for = [(copying.topic, number, 1) for number in range(copying.partitions)]
    answers = replicator.translate(copying.file.path, copying.file.flow, asked_for)
    assert [it.offset for it in answers] == by_file
    code, out, said = asked(copying, "--topic", copying.copy, "--partition", "0", "--offset", "1")
    assert (code, out) == (2, "")
    assert f"{copying.copy} is a topic of the other side: ask with --reverse" in said
    code, out, said = asked(copying, "--topic", copying.topic, "--partition", "77", "--offset", "1")
    assert (code, "has 3 partitions" in said) == (2, True), said
    code, out, said = asked(copying, "--group", "nobody")
    assert (code, "group nobody has no offset in the flow's topics" in said) == (2, True), said


@pytest.mark.tier("full", kafka="long")
def test_what_was_not_copied_or_is_another_topic_has_no_translation(make_copying: MakeCopying) -> None:
    copying = make_copying()
    copying.load.mixed(60)
    copying.finish(copying.running())
    clients.recreate_topic(copying.source, copying.topic, copying.partitions + 1)
    code, out, _ = asked(copying, "--time", "1970-01-01T00:00:00Z", "--json")
    assert code == 1
    problems = [it["problem"] for it in json.loads(out)["offsets"]]
    assert problems == ["source_topic_recreated"] * copying.partitions + ["not_copied"]
    code, out, said = asked(copying, "--time", "1970-01-01T00:00:00Z", "--csv")
    assert (code, out) == (1, "")
    assert said.count("source topic's id was") == copying.partitions, said


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("to", [5, 8])
def test_no_copy_before_a_position_that_was_set_is_skipped(make_copying: MakeCopying, to: int) -> None:
    copying = make_copying(partitions=1)
    _copy_more(copying, range(6))
    clients.put(clients.producer(copying.source), copying.topic, *[b"%d" % number for number in range(6, 10)])
    command = [sys.executable, "-m", "cli.main", "position", "set", "-c", str(copying.file.path), "--why", "a test"]
    command += ["--partition", f"{copying.topic}:0", "--offset", str(to), "--yes-i-mean", copying.file.flow]
    subprocess.run(command, check=True, timeout=ASKED_S_MAX)
    _copy_more(copying, range(10, 12))
    here = [(it.offset() or 0, it.value()) for it in clients.read(copying.source, copying.topic, 0)]
    there = [(it.offset() or 0, it.value()) for it in clients.read(copying.target, copying.copy, 0)]
    asked_for = [(copying.topic, 0, offset) for offset, _ in here]
    found = replicator.translate(copying.file.path, copying.file.flow, asked_for)
    assert any(it.offset is not None for it in found)
    for (offset, _), it in zip(here, found, strict=True):
        after = {value for at, value in here if at >= offset}
        first = min(at for at, value in there if value in after)
        low, high = it.translated.bounds or (0, it.offset)
        assert low <= first, it
        if it.offset is None:
            assert first <= (high or 0), it
        else:  # a record that stands there twice may be skipped once
            kept = {value for at, value in there if at >= it.offset}
            assert kept >= after & {value for _, value in there}, it


def _copy_more(copying: Copying, numbers: range) -> None:
    worker = copying.running()
    clients.put(clients.producer(copying.source), copying.topic, *[b"%d" % number for number in numbers])
    clients.wait_value(copying.target, copying.copy, 0, b"%d" % numbers[-1])
    assert worker.stop() == 0, worker.tail()
