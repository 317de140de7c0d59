"""An older version and this one run a flow in turn, again and again, and nothing is lost or doubled; what an older
version can't go on with it refuses before it writes.

EOS_OLD_COMMIT chooses the older version; EOS_UPGRADE_SEEDS=7,8 draws other changes.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import older
from integration_tests.harness.copying import Copying
from integration_tests.harness.failing_over import failover
from integration_tests.harness.replicator import DEFAULT, Replicator
from tests.budget import budget
from tests.running.users_packages import users_packages

pytestmark = [pytest.mark.tier("long"), pytest.mark.timeout(3_600)]

CHANGES = budget(5, 50)
LANES, PARTITIONS = 4, 8
SEEDS = [int(text) for text in os.environ.get("EOS_UPGRADE_SEEDS", "1").split(",")]
HOW = (
    "stopped, then the next one",
    "killed, then the next one",
    "the next one, then stopped",
    "the next one, then killed",
)
RECONCILED_S_MAX = 300.0


@pytest.mark.parametrize("seed", SEEDS)
def test_two_versions_in_turn_lose_and_double_nothing(make_copying: MakeCopying, tmp_path: Path, seed: int) -> None:
    """Upgrades and downgrades under load. Sometimes both versions share the lanes for a while: a rolling update."""
    commit, drawn = older.with_the_same_formats(), random.Random(seed)
    trees = (older.tree(tmp_path, commit), None)
    print(f"EOS_OLD_COMMIT={commit} EOS_UPGRADE_SEEDS={seed}")
    copying = make_copying(partitions=PARTITIONS, lanes=LANES, seed=seed)
    with copying.writing():
        worker = _begun(copying, trees[0])
        for number in range(1, CHANGES + 1):
            how, tree = drawn.choice(HOW), trees[number % 2]
            print(f"{number}: {how} ({'older' if tree else 'this'} version)")
            worker = _change(copying, worker, how, tree)
        if trees[CHANGES % 2] is not None:
            worker = _change(copying, worker, HOW[0], None)
    copying.finish(worker)
    _reconciled(copying)


def _begun(copying: Copying, tree: Path | None) -> Replicator:
    worker = copying.run("", "--shared", tree=tree)
    worker.wait_event("committed")
    return worker


def _change(copying: Copying, worker: Replicator, how: str, tree: Path | None) -> Replicator:
    """End the worker in that way, and have one of the other version copy in its place; that one."""

    def end() -> None:
        if "killed" in how:
            worker.kill()
        else:
            assert worker.stop() == 0, worker.tail()

    if how.startswith("the next one"):
        following = copying.run("", "--shared", tree=tree)
        following.wait_event("committed")
        end()
    else:
        end()
        following = _begun(copying, tree)
    for each in (worker, following):
        assert not each.seen("incident"), each.tail()
        assert not each.seen("flow_ended"), each.tail()
    mark = following.mark()
    following.wait_event("committed", after=mark)
    return following


def _reconciled(copying: Copying) -> None:
    """`reconcile --local` finds both sides the same, by the map that both versions wrote."""
    command = [sys.executable, "-m", "cli.main", "reconcile", "--local", "-c", str(copying.file.path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=RECONCILED_S_MAX, env=users_packages()
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _fail_over(copying: Copying) -> None:
    failover(copying)


def _undo(copying: Copying) -> None:
    code, said = failover(copying, "--undo")
    assert code == 0, said


def _nothing(_: Copying) -> None:
    """The flow has copied, and that is all."""


ONE_WAY = {
    "offset map": ("replicator/model/checkpoint.py", "FORMAT_VERSION, WITHOUT_MAP = 2, 1", _nothing, _nothing),
    "settings with the generation": ("replicator/state/generation.py", "WITH_SETTINGS", _nothing, _nothing),
    "failed over": ("replicator/state/generation.py", "WITH_FROZEN", _fail_over, _undo),
    "digest of batches": ("replicator/model/checkpoint.py", "blake3-128/payloads-v1", _nothing, _nothing),
}
"""What can't go back, the commit before which it was not known, what a flow must have done, and how it is undone."""


@pytest.mark.parametrize("what", ONE_WAY)
def test_what_can_not_go_back_is_refused_before_anything_is_written(
    make_copying: MakeCopying, tmp_path: Path, what: str
) -> None:
    path, text, prepare, undo = ONE_WAY[what]
    tree = older.tree(tmp_path, older.before(path, text))
    copying = make_copying(engine="batches" if what == "digest of batches" else DEFAULT)
    copying.load.mixed(300)
    worker = copying.running()
    worker.wait_event("committed")
    copying.wait_copied()
    assert worker.stop() == 0, worker.tail()
    prepare(copying)
    positions, ends = copying.wait_stable(), copying.target_ends()
    old = copying.run(tree=tree)
    _refused(old)
    assert (copying.wait_stable(), copying.target_ends()) == (positions, ends)
    undo(copying)
    copying.load.transaction(30)
    copying.finish(copying.running())


def _refused(old: Replicator) -> None:
    """It says `newer_format`, and ends or stays without copying; then it is killed."""
    old.wait_any(lambda event: "newer_format" in str(event), "newer_format")
    old.kill()
    assert not old.seen("committed"), old.tail()
