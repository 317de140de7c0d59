"""Whole runs of the broker in simulated time: the same seed is the same run, and nothing goes wrong in it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from embedded_broker.simulation.run import simulate
from embedded_broker.simulation.schedule import PLAYBILL, Play
from tests.embedded_broker.simulation import group_mutations, keeping_mutations, mutations

SEEDS = range(8)
ALL_PLAYS_SEED = 3
SEEDS_TO_FIND_A_BUG_MAX = 60
DIGEST = f"from embedded_broker.simulation.run import simulate; print(simulate({ALL_PLAYS_SEED}).digest)"
MUTATIONS = [*mutations.WRITING, *group_mutations.SHARING, *keeping_mutations.KEEPING]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_goes_wrong(seed: int) -> None:
    result = simulate(seed)
    assert result.violations == ()
    assert result.crashes > 0
    assert result.events > 500


def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    assert PLAYBILL[ALL_PLAYS_SEED % len(PLAYBILL)] == tuple(Play)
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
    assert digests == {simulate(ALL_PLAYS_SEED).digest}
    assert digests != {simulate(0).digest}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_planted_bug_is_found(mutation: mutations.Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.plant(monkeypatch)
    first, step = PLAYBILL.index((mutation.play,)), len(PLAYBILL)
    for seed in range(first, first + SEEDS_TO_FIND_A_BUG_MAX * step, step):
        if mutation.kinds & {violation.kind for violation in simulate(seed).violations}:
            return
    pytest.fail(f"no seed has found it as {sorted(mutation.kinds)}")
