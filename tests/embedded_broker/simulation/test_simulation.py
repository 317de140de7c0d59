"""Whole runs of the broker in simulated time: the same seed is the same run, and planted bugs are found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from embedded_broker.simulation.run import simulate
from embedded_broker.simulation.schedule import KINDS_BY_SEED, WorkloadKind
from tests.budget import budget
from tests.embedded_broker.simulation import (
    admin_mutations,
    client_mutations,
    disk_mutations,
    group_mutations,
    internal_mutations,
    mutations,
    retention_mutations,
)

pytestmark = pytest.mark.tier("extended")  # whole runs of the broker

SAME_SEEDS = range(budget(5, 60))
SEEDS_TO_FIND_A_BUG = range(60)
"""All in a row; those in which nobody does what a bug concerns are left out."""
DIGESTS = f"from embedded_broker.simulation.run import simulate; print(*(simulate(n).digest for n in {SAME_SEEDS}))"
PLANTED = (
    mutations,
    admin_mutations,
    group_mutations,
    retention_mutations,
    disk_mutations,
    internal_mutations,
    client_mutations,
)
ALWAYS_TRIED = {
    "acknowledge_before_the_fsync",
    "take_batches_of_earlier_epochs",
    "cancel_changes_whose_client_leaves",
    "take_commits_of_former_generations",
}
"""In `make test`; all of them are tried by `make test-long`."""
MUTATIONS = [
    pytest.param(mutation, id=mutation.name, marks=() if mutation.name in ALWAYS_TRIED else pytest.mark.tier("full"))
    for module in PLANTED
    for mutation in module.MUTATIONS
]


@pytest.mark.tier("full")
def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    """Addresses of objects and hashes of strings differ from process to process."""
    assert {kind for seed in SAME_SEEDS for kind in KINDS_BY_SEED[seed % len(KINDS_BY_SEED)]} == set(WorkloadKind)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    one, other = (process.communicate()[0].split() for process in processes)
    assert len(set(one)) == len(SAME_SEEDS)
    assert [seed for seed, *digests in zip(SAME_SEEDS, one, other, strict=True) if digests[0] != digests[1]] == []


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_planted_bug_is_found(mutation: mutations.Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.plant(monkeypatch)
    for seed in SEEDS_TO_FIND_A_BUG:
        if mutation.workload not in KINDS_BY_SEED[seed % len(KINDS_BY_SEED)]:
            continue
        if mutation.kinds & {violation.kind for violation in simulate(seed).violations}:
            return
    pytest.fail(f"no seed has found it as {sorted(mutation.kinds)}")
