"""Whole runs of the broker in simulated time: the same seed is the same run, and nothing goes wrong in it."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest

from embedded_broker.simulation.run import simulate
from embedded_broker.simulation.schedule import KINDS_BY_SEED, WorkloadKind
from tests.budget import LONG, budget
from tests.embedded_broker.simulation import group_mutations, mutations, retention_mutations

pytestmark = pytest.mark.slow  # whole runs of the broker

SEEDS = range(budget(8, 400))
ALL_WORKLOADS_SEED = 3
SEEDS_TO_FIND_A_BUG_MAX = 60
FOUND_BY = {
    "acknowledge_what_there_was_no_disk_space_for": 88,
    "end_when_the_disk_is_full": 68,
    "give_partitions_that_others_still_hold": 129,
    "go_on_after_an_fsync_has_failed": 72,
    "let_a_single_marker_decide_over_several_partitions": 48,
    "never_notice_that_there_is_disk_space_again": 36,
    "refuse_to_read_when_the_disk_is_full": 68,
    "show_what_is_not_on_disk_yet": 100,
}
"""Seeds that are tried first, for bugs that the first few seeds don't find. It costs time, and nothing else, when one
of them doesn't find its bug any more: then all seeds are tried, as they are in `make test-long`."""
DIGEST = f"from embedded_broker.simulation.run import simulate; print(simulate({ALL_WORKLOADS_SEED}).digest)"
MUTATIONS = [*mutations.MUTATIONS, *group_mutations.MUTATIONS, *retention_mutations.MUTATIONS]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_goes_wrong(seed: int) -> None:
    result = simulate(seed)
    assert result.violations == ()
    assert result.crashes > 0
    assert result.events > 500


def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    assert KINDS_BY_SEED[ALL_WORKLOADS_SEED % len(KINDS_BY_SEED)] == tuple(WorkloadKind)
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {simulate(ALL_WORKLOADS_SEED).digest}
    assert digests != {simulate(0).digest}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_planted_bug_is_found(mutation: mutations.Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.plant(monkeypatch)
    first, step = KINDS_BY_SEED.index((mutation.workload,)), len(KINDS_BY_SEED)
    seeds = [*range(first, first + SEEDS_TO_FIND_A_BUG_MAX * step, step)]
    known = None if LONG else FOUND_BY.get(mutation.name)
    for seed in seeds if known is None else [known, *seeds]:
        if mutation.kinds & {violation.kind for violation in simulate(seed).violations}:
            if known not in (None, seed):
                warnings.warn(f"seed {known} finds {mutation.name} no more, seed {seed} does", stacklevel=1)
            return
    pytest.fail(f"no seed has found it as {sorted(mutation.kinds)}")
