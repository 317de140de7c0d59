"""A flow is failed over at any moment, under load, while workers, both brokers and the command itself die: the consumer
group skips nothing at the target, reads again what was consumed since it was synced last at most, nothing is copied any
more, and each transaction that is half copied is named.

EOS_FAILOVER_SEEDS=11,12,13 runs these.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.failover_plan import FailoverPlan
from integration_tests.harness.failover_run import FailoverRun
from integration_tests.harness.failover_truth import FailoverTruth

SEEDS = [int(text) for text in os.environ.get("EOS_FAILOVER_SEEDS", "1,2,3").split(",")]
SESSION_MS = {"embedded": 2_000, "kafka": 6_000}
LIMITS = {"recommit_interval_ms": 1_000, "discovery_interval_ms": 200, "connect_timeout_ms": 5_000}


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_failover_at_any_moment_skips_nothing_and_names_what_is_half_copied(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, unique: Callable[[str], str], seed: int
) -> None:
    plan = FailoverPlan.draw(seed)
    print(f"EOS_FAILOVER_SEEDS={seed}: {plan}")
    copying = make_copying(
        partitions=plan.partitions[0],
        engine=plan.engine,
        lanes=plan.lanes,
        groups={"include": ["^.*"], "interval_ms": plan.interval_ms},
        limits={**LIMITS, "session_timeout_ms": SESSION_MS[target.kind]},
    )
    with closing(FailoverRun(plan, copying, (source, target), unique)) as run:
        run.begin()
        run.fail_over()
        run.after()
        truth = FailoverTruth(run)
        truth.check()
        if plan.undo:
            run.undone()
            truth.all_is_copied()
