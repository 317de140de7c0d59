"""The formula of sizing: each part counts, the page says what was measured, and how far it is off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks import sizing
from benchmarks.sizing import Coefficients, Demand, estimate
from benchmarks.sizing_measure import Run, fit

pytestmark = pytest.mark.tier("default")
KNOWN = Coefficients(
    cores_idle=0.02,
    cores_idle_per_lane=0.01,
    core_s_per_million_records=5.0,
    core_s_per_million_batches=30.0,
    core_s_per_gib=4.0,
    core_s_per_thousand_transactions=2.0,
    commit_ms=7.0,
    memory_mib=60.0,
    memory_mib_per_lane=4.0,
)
LOAD = Demand(100_000, 1024, 64, batch_records=100)


def test_each_part_of_a_load_costs() -> None:
    found = estimate(LOAD, KNOWN)
    assert (found.lanes, found.transactions_per_s) == (2, pytest.approx(200))
    assert found.mib_per_s == pytest.approx(97.66, abs=0.01)
    assert found.cores == pytest.approx(0.02 + 2 * 0.01 + 0.5 + 0.03 + 4 * 100_000 * 1024 / 2**30 + 0.4)
    assert (found.processes, found.memory_mib, found.memory_mib_max) == (2, 68, 68 + 128)


def test_there_are_no_more_transactions_than_records_and_no_less_than_one_lane() -> None:
    assert estimate(replace(LOAD, records_per_s=5), KNOWN).transactions_per_s == 5
    assert estimate(replace(LOAD, partitions=1), KNOWN).lanes == 1
    assert estimate(replace(LOAD, partitions=5_000), KNOWN).lanes == 8
    assert estimate(replace(LOAD, lanes=3), KNOWN).lanes == 3


def test_a_flow_with_full_queues_fits_into_the_memory_that_the_chart_allows() -> None:
    values = yaml.safe_load((Path(__file__).parents[2] / "configs/helm/eos-replicate/values.yaml").read_text())
    allowed = int(values["resources"]["limits"]["memory"].removesuffix("Mi"))
    most = estimate(replace(LOAD, partitions=5_000), Coefficients.of(sizing.newest()["coefficients"]))
    assert most.memory_mib_max * 1.2 < allowed


def test_a_longer_linger_costs_fewer_cores() -> None:
    assert estimate(replace(LOAD, linger_ms=93), KNOWN).transactions_per_s == pytest.approx(20)
    assert estimate(replace(LOAD, linger_ms=93), KNOWN).cores < estimate(LOAD, KNOWN).cores


def test_what_follows_the_formula_is_fitted_by_it() -> None:
    loads = [
        Demand(0, 0, 8, 1),
        Demand(0, 0, 8, 4),
        Demand(1_000, 100, 8, 1),
        Demand(9_000, 100, 8, 2, 50, batch_records=2),
        Demand(1_000, 5_000, 8, 4, 20),
        Demand(3_000, 500, 8, 2),
    ]
    runs = []
    for load in loads:
        said = estimate(load, KNOWN)
        records = load.records_per_s * 100
        runs.append(
            (
                load,
                Run(
                    seconds=100,
                    core_s=said.cores * 100,
                    records=int(records),
                    batches=round(records / load.batch_records),
                    bytes_=int(records * load.bytes_per_record),
                    transactions=round(said.transactions_per_s * 100),
                    memory_mib=said.memory_mib,
                ),
            )
        )
    found = fit(runs)
    for name in KNOWN.__slots__:
        assert getattr(found, name) == pytest.approx(getattr(KNOWN, name), rel=0.01), name


def test_the_page_says_what_was_measured() -> None:
    text = sizing.PAGE.read_text()
    assert sizing.written(text, sizing.newest()) == text, "run python -m benchmarks.sizing_measure"


def test_three_loads_that_were_not_fitted_are_shown_and_what_is_far_off_is_marked() -> None:
    found = sizing.newest()
    assert len(found["checked"]) == 3
    run = {"name": "a load", "said": {"cores": 1.0, "transactions_per_s": 10, "memory_mib": 100}}
    measured = {"cores": 1.3, "transactions_per_s": 12, "memory_mib": 80}
    lines = sizing.table({**found, "checked": [{**run, "measured": measured}]}).splitlines()
    assert [line.rpartition(" | ")[2] for line in lines if line.startswith("| a load")] == [
        "**+30%** |",
        "+20% |",
        "-20% |",
    ]
