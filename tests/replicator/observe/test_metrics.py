"""Metrics as Prometheus reads them: every name that is documented is there, and a view's values arrive."""

from __future__ import annotations

import ast
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from replicator.flow.restarts import Stage
from replicator.model.partition import Partition
from replicator.observe import metrics
from replicator.observe.figures import SECONDS, LaneFigures, PartitionFigures
from replicator.observe.lag import Lag
from replicator.observe.metrics import METRICS, Metrics, shown_name
from replicator.observe.view import Doing, FlowView, PartitionView
from replicator.state.run_settings import FLOW, RateLimit

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
MODULE = ast.parse(Path(metrics.__file__).read_text())
HOSTILE = 'a"b\\c\nd'


def partition(number: int, doing: Doing = Doing.COPYING, kind: str = "", lag: Lag | None = None) -> PartitionView:
    figures = PartitionFigures(records=10 * number, bytes=100 * number, position=number, committed_ms=1_500)
    return PartitionView(Partition("t", number), doing, kind, "", figures, lag)


def flow(*partitions: PartitionView, stage: Stage = Stage.RUNNING, name: str = "f") -> FlowView:
    took = [1, *[0] * (len(SECONDS) - 1), 2]
    lane = LaneFigures(sessions=3, fenced=1, aborts=Counter(Abortable=4), took=took, took_s=150.0, queued_bytes=77)
    return FlowView(name, "a", "b", stage, partitions, {0: lane})


ALL = flow(
    partition(1, lag=Lag(5, 2.5, 1)),
    partition(2, Doing.WAITING, "no_answer", Lag(7, 9.5, 0)),
    partition(3, Doing.STOPPED, "record_refused", Lag(0, 0.0, 0)),
)


def samples(view: FlowView, partitions_max: int = 100) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = Metrics(lambda: [view], "1.2", partitions_max).text().decode()
    families = text_string_to_metric_families(text)
    return {(each.name, frozenset(each.labels.items())): each.value for f in families for each in f.samples}


def at(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_values_arrive() -> None:
    found = samples(ALL)
    first = {"flow": "f", "topic": "t", "partition": "1"}
    assert found[at("eos_build_info", version="1.2")] == 1
    assert found[at("eos_partition_records_total", **first)] == 10
    assert found[at("eos_partition_bytes_total", **first)] == 100
    assert found[at("eos_partition_position", **first)] == 1
    assert found[at("eos_partition_state", **first)] == 1
    assert found[at("eos_partition_lag_records", **first)] == 5
    assert found[at("eos_partition_lag_seconds", **first)] == 2.5
    assert found[at("eos_partition_held_back_records", **first)] == 1
    assert found[at("eos_partition_last_commit_timestamp_seconds", **first)] == 1.5
    assert found[at("eos_partition_cause", flow="f", topic="t", partition="3", kind="record_refused")] == 1
    assert found[at("eos_flow_records_total", flow="f")] == 60
    assert found[at("eos_flow_lag_records", flow="f")] == 12
    assert found[at("eos_flow_lag_seconds", flow="f")] == 9.5
    assert found[at("eos_flow_ready", flow="f")] == 0
    assert found[at("eos_flow_partitions", flow="f", state="waiting")] == 1
    assert found[at("eos_lane_aborts_total", flow="f", lane="0", kind="Abortable")] == 4
    assert found[at("eos_lane_queued_bytes", flow="f", lane="0")] == 77
    assert found[at("eos_lane_transaction_seconds_bucket", flow="f", lane="0", le="60.0")] == 1
    assert found[at("eos_lane_transaction_seconds_bucket", flow="f", lane="0", le="+Inf")] == 3
    assert found[at("eos_lane_transaction_seconds_sum", flow="f", lane="0")] == 150


def test_lost_records_are_counted_from_zero_for_a_flow_and_from_the_first_one_for_a_partition() -> None:
    one, other = partition(1), partition(2)
    found = samples(flow(one, other))
    assert found[at("eos_flow_lost_records_total", flow="f")] == 0
    assert not [name for name, _ in found if name.startswith("eos_partition_lost_records")]
    lossy = replace(other, figures=replace(other.figures, lost_records=3))
    found = samples(flow(one, lossy))
    assert found[at("eos_flow_lost_records_total", flow="f")] == 3
    lost = {key: value for key, value in found.items() if key[0] == "eos_partition_lost_records_total"}
    assert lost == {at("eos_partition_lost_records_total", flow="f", topic="t", partition="2"): 3}


def test_kind_and_meaning_are_read_as_they_are_described() -> None:
    families = text_string_to_metric_families(Metrics(lambda: [ALL], "1.2", 100).text().decode())
    found = {each.name: (each.type, each.documentation) for each in families if each.name.startswith("eos_")}
    assert found.pop("eos_build_info")[0] == "gauge"
    assert found == {name: (it.kind, it.help) for name, it in METRICS.items() if it.kind != "info"}


def test_what_operators_have_limited_is_told_of_the_flow_and_of_topics_with_a_limit_of_their_own() -> None:
    rates = {FLOW: RateLimit(bytes_per_s=2_000), "t": RateLimit(records_per_s=500, by="ann"), "u": RateLimit()}
    found = {at: value for at, value in samples(replace(ALL, rates=rates)).items() if "rate_limit" in at[0]}
    assert found == {
        at("eos_flow_rate_limit_bytes_per_second", flow="f"): 2_000,
        at("eos_topic_rate_limit_records_per_second", flow="f", topic="t"): 500,
    }


def test_a_limit_goes_with_a_topic_that_is_no_longer_in_the_flow_file() -> None:
    rates = {FLOW: RateLimit(bytes_per_s=2_000), "t": RateLimit(records_per_s=500), "gone": RateLimit(bytes_per_s=1)}
    limited = replace(ALL, rates=rates, taken_out=("gone",))
    found = {name: dict(labels).get("topic") for name, labels in samples(limited) if "rate_limit" in name}
    assert found == {
        "eos_flow_rate_limit_bytes_per_second": None,
        "eos_topic_rate_limit_records_per_second": "t",
    }


def test_the_help_of_a_state_has_each_number() -> None:
    told = ", ".join(f"{doing.value}: {doing.name.lower()}" for doing in Doing)
    assert METRICS["eos_partition_state"].help == f"{told}."


def test_what_is_unknown_is_absent() -> None:
    found = samples(flow(partition(1, lag=Lag(5, 2.5, 1)), partition(2)))
    assert at("eos_flow_lag_records", flow="f") not in found
    assert at("eos_partition_lag_records", flow="f", topic="t", partition="2") not in found
    assert at("eos_partition_lag_records", flow="f", topic="t", partition="1") in found


def test_too_many_partitions_leave_the_flow_and_its_lanes() -> None:
    found = samples(ALL, partitions_max=2)
    assert not [name for name, _ in found if name.startswith("eos_partition_")]
    assert found[at("eos_flow_partitions_omitted", flow="f")] == 3
    assert found[at("eos_flow_lag_records", flow="f")] == 12
    assert samples(ALL, partitions_max=3)[at("eos_flow_partitions_omitted", flow="f")] == 0


@pytest.mark.parametrize("stage", Stage)
def test_a_flow_is_ready_only_while_it_runs_and_all_is_copied(stage: Stage) -> None:
    assert flow(partition(1), stage=stage).ready == (stage is Stage.RUNNING)
    assert not flow(partition(1), partition(2, Doing.UNDECIDED), stage=stage).ready


def test_labels_with_any_character_can_be_read_again() -> None:
    view = flow(partition(1, Doing.STOPPED, HOSTILE))
    assert at("eos_partition_cause", flow="f", topic="t", partition="1", kind=HOSTILE) in samples(view)


def test_the_page_has_every_metric_and_no_other() -> None:
    shown = {shown_name(name) for name in METRICS}
    written = set(re.findall(r"^\| `(eos_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert written == shown


def test_each_metric_has_a_line_that_writes_it() -> None:
    """One that is described and never written has its header in each scrape, and no value."""
    described = next(it for it in MODULE.body if isinstance(it, ast.AnnAssign) and ast.unparse(it.target) == "METRICS")
    nodes = [node for it in MODULE.body if it is not described for node in ast.walk(it)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    patterns = [
        "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+" for part in node.values)
        for node in nodes
        if isinstance(node, ast.JoinedStr) and ast.unparse(node).startswith("f'eos_")
    ]
    written = [name for name in METRICS if name in texts or any(re.fullmatch(each, name) for each in patterns)]
    assert written == list(METRICS)


def test_a_thousand_partitions_are_written_at_once() -> None:
    """No bound on time here: what a scrape costs is measured in benchmarks."""
    view = flow(*(partition(number, lag=Lag(1, 1.0, 0)) for number in range(1_000)))
    began = time.perf_counter()
    found = samples(view, partitions_max=1_000)
    print(f"{len(found)} samples in {time.perf_counter() - began:.3f} s, with parsing them")
    assert len([name for name, _ in found if name == "eos_partition_state"]) == 1_000
