"""Whole runs of the broker in simulated time: the same seed is the same run, and nothing goes wrong in it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from embedded_broker.simulation.run import simulate
from embedded_broker.simulation.schedule import KINDS_BY_SEED, WorkloadKind
from tests.budget import LONG, budget
from tests.embedded_broker.simulation import (
    client_mutations,
    disk_mutations,
    group_mutations,
    internal_mutations,
    mutations,
    retention_mutations,
)

pytestmark = pytest.mark.tier("default")  # whole runs of the broker

SEEDS = range(budget(8, 400))
SAME_SEEDS = range(budget(10, 60))
SEEDS_TO_FIND_A_BUG_MAX = 60
FOUND_BY = {
    "count_what_was_appended_during_the_fsync": 70,
    "cut_an_internal_log_without_waiting_for_the_disk": 10,
    "give_partitions_that_others_still_hold": 46,
    "go_on_after_an_fsync_has_failed": 25,
    "hand_out_producer_ids_whose_reservation_is_not_on_disk": 10,
    "let_a_single_marker_decide_over_several_partitions": 130,
    "let_timers_follow_the_clock_on_the_wall": 61,
    "show_what_is_not_on_disk_yet": 50,
    "show_what_was_appended_during_the_fsync": 120,
    "take_what_is_found_at_a_start_for_durable": 89,
    "trust_what_a_failed_fsync_has_left_in_memory": 55,
}
"""Seeds that are tried first, for bugs that the first few seeds don't find. It costs time, and nothing else, when one
of them doesn't find its bug any more: then all seeds are tried, as they are in `make test-long`."""
FOUND_LATE = {
    "acknowledge_before_the_fsync",
    "leave_out_partitions_whose_end_has_not_moved",
    "take_torn_batches_for_sound",
}
"""What takes many seeds, too, or seeds that take long."""
DIGESTS = f"from embedded_broker.simulation.run import simulate; print(*(simulate(n).digest for n in {SAME_SEEDS}))"
PLANTED = (mutations, group_mutations, retention_mutations, disk_mutations, internal_mutations, client_mutations)
MUTATIONS = [
    pytest.param(
        mutation,
        id=mutation.name,
        marks=pytest.mark.tier("full" if mutation.name in {*FOUND_BY, *FOUND_LATE} else "default"),
    )
    for module in PLANTED
    for mutation in module.MUTATIONS
]
"""What the first few seeds find is in `make test`."""


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_goes_wrong(seed: int) -> None:
    result = simulate(seed)
    assert result.violations == ()
    assert result.crashes > 0
    assert result.events > 200


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
    first, step = KINDS_BY_SEED.index((mutation.workload,)), len(KINDS_BY_SEED)
    seeds = [*range(first, first + SEEDS_TO_FIND_A_BUG_MAX * step, step)]
    known = None if LONG else FOUND_BY.get(mutation.name)
    for seed in seeds if known is None else [known, *seeds]:
        if mutation.kinds & {violation.kind for violation in simulate(seed).violations}:
            if known not in (None, seed):
                print(f"seed {known} finds {mutation.name} no more, seed {seed} does")  # see FOUND_BY
            return
    pytest.fail(f"no seed has found it as {sorted(mutation.kinds)}")
