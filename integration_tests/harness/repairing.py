"""A repair in a process of its own, so that it can be killed: FLOW_FILE, and what is missing as JSON on stdin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict

import structlog

from integration_tests.harness.replicator import FAILPOINTS, FlowFile
from replicator import config, failpoints
from replicator.jobs.repair import RepairJob, RepairSummary
from replicator.jobs.repair_spans import Damage, Missing, RepairRequest
from replicator.model.partition import Partition
from replicator.state.claims import Repair


def repair(
    file: FlowFile,
    damage: Mapping[Partition, Damage],
    *,
    whole: Collection[Partition] = (),
    known: Collection[Repair] = (),
    take_over: bool = False,
) -> RepairSummary:
    """Repair in this process."""
    loaded = config.load(file.path)
    requests = [RepairRequest(damage)] if damage else []
    at = loaded.flows[file.flow], loaded, requests, structlog.get_logger()
    return RepairJob(*at, whole=whole, known=known, take_over=take_over).run()


def killed(file: FlowFile, damage: Mapping[Partition, Damage], step: str) -> None:
    """Repair in another process, which is killed at this step, as EOS_FAILPOINTS says it."""
    told = [[*at, asdict(found)] for at, found in damage.items()]
    command = [sys.executable, "-m", "integration_tests.harness.repairing", str(file.path), file.flow]
    environment = {**os.environ, FAILPOINTS: f"{step}=kill"}
    done = subprocess.run(command, input=json.dumps(told), text=True, env=environment, capture_output=True, timeout=60)
    assert done.returncode == -9, f"{done.returncode}: {done.stdout}{done.stderr}"


def _main() -> None:
    loaded = config.load(sys.argv[1])
    damage = {
        Partition(topic, number): Damage(**{**found, "missing": tuple(Missing(*span) for span in found["missing"])})
        for topic, number, found in json.load(sys.stdin)
    }
    failpoint = failpoints.parse(os.environ[FAILPOINTS])
    RepairJob(loaded.flows[sys.argv[2]], loaded, [RepairRequest(damage)], structlog.get_logger(), failpoint).run()


if __name__ == "__main__":
    _main()
