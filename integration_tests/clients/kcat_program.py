"""The plan's program with kcat, as far as kcat goes: it creates no topics, copies nothing, and can't ask for committed
offsets. A transaction is one call of it, and is aborted by a signal."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Sequence

from integration_tests.clients.plan import IDEMPOTENT, Plan, ReadRecord, Report, stage
from integration_tests.harness import clients

WAIT_S_MAX = 120.0
POLL_S = 0.05
READ_BYTES = 128
"""kcat reads its input in such pieces, one for each line, and waits for whole ones. It leaves empty lines out."""


def run(plan: Plan) -> Report:
    """See `plan`."""
    clients.create_topic(plan.bootstrap, plan.topic, 2)
    for codec in plan.codecs:
        _write(plan, codec, "-z", codec)
    _write(plan, IDEMPOTENT, "-X", "enable.idempotence=true")
    transactional = ["-p", "1", "-X", f"transactional.id={plan.transactional_id}"]
    for number, commit in enumerate(plan.rounds):
        lines = "".join(f"{value}\n" for value in plan.values(stage(number)))
        if commit:
            _kcat(plan, "-P", "-t", plan.topic, *transactional, lines=lines)
        else:
            _abort(plan, transactional, lines, sum(map(len, map(plan.values, map(stage, range(number + 1))))))
    report = Report(read=_read(plan))
    for partition in (0, 1):
        at = clients.committed(plan.bootstrap, plan.group, plan.topic, partition)
        report.committed[partition] = at.offset
    for time_ms in report.ask_times():
        report.by_time[time_ms] = _by_time(plan, time_ms)
    return report


def _command(plan: Plan, *options: str) -> list[str]:
    found = shutil.which("kcat")
    assert found is not None
    return [found, "-b", plan.bootstrap, "-q", "-m", "30", *options]


def _kcat(plan: Plan, *options: str, lines: str = "") -> str:
    """What it writes on stdout."""
    command = _command(plan, *options)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert done.returncode == 0, f"{options}: {done.stderr}"
    return done.stdout


def _write(plan: Plan, stage: str, *options: str) -> None:
    _kcat(
        plan, "-P", "-t", plan.topic, "-p", "0", *options, lines="".join(f"{value}\n" for value in plan.values(stage))
    )


def _abort(plan: Plan, options: Sequence[str], lines: str, there: int) -> None:
    """SIGTERM, once all records of the transaction are on the broker: `there`, with those of the others."""
    command = _command(plan, "-P", "-t", plan.topic, *options)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(lines + "\n" * (READ_BYTES * plan.each))
        process.stdin.flush()
        deadline = time.monotonic() + WAIT_S_MAX
        while len(clients.read(plan.bootstrap, plan.topic, 1, isolation="read_uncommitted")) < there:
            assert time.monotonic() < deadline, f"no {there} records"
            time.sleep(POLL_S)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=WAIT_S_MAX)
    assert "Aborting transaction" in said


def _read(plan: Plan) -> list[ReadRecord]:
    """As the only member of the group, to the end; it commits when it leaves."""
    settings = ["isolation.level=read_committed", "auto.offset.reset=earliest", "fetch.wait.max.ms=50"]
    options = [word for setting in settings for word in ("-X", setting)]
    said = _kcat(plan, *options, "-e", "-f", "%p %o %T %s\\n", "-G", plan.group, plan.topic)
    return [_read_record(line) for line in said.splitlines()]


def _read_record(line: str) -> ReadRecord:
    partition, offset, timestamp_ms, value = line.split(" ", 3)
    return ReadRecord(int(partition), int(offset), int(timestamp_ms), value)


def _by_time(plan: Plan, time_ms: int) -> int | None:
    """kcat says `topic [0] offset N`; librdkafka's number for the end is negative."""
    offset = int(_kcat(plan, "-Q", "-t", f"{plan.topic}:0:{time_ms}").split()[-1])
    return None if offset < 0 else offset
