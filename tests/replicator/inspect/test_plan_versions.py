"""What clusters speak, and what `plan` and `run` say of one that can't do what a flow needs."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from cli.commands.plan import _show
from embedded_broker.api import api_versions, registry
from embedded_broker.testing.handle import KafkaBroker
from replicator.config import Cluster, Config, Flow, Properties, load_text
from replicator.flow.topics import ControlPlane
from replicator.inspect import planning
from replicator.inspect.flow_plan import FlowPlan, PlanFinding
from replicator.inspect.plan_versions import TRIED, plan_versions, release_of, release_warnings
from replicator.model.errors import Unsupported
from replicator.wire.cluster_versions import check_target, only_unknown_versions, spoken, without_transactions
from replicator.wire.connection import Spoken
from tests.replicator.wire.fake_broker import Answer, FakeBroker, Leader, flow_of, response

pytestmark = pytest.mark.tier("extended")  # the unit tier is full
ROOT = Path(__file__).parents[3]
EAST = Cluster(name="east", properties=Properties({}))
TRANSACTIONS = {
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
}
KAFKA_4_3 = Spoken({1: (4, 18), **dict.fromkeys(TRANSACTIONS, (0, 5))}, {"metadata.version": 30})
NEWER, OLDER = 31, 20
API_VERSIONS = 18


def leveled(level: int | None, fetch: int = 18) -> Spoken:
    return Spoken({1: (4, fetch)}, {} if level is None else {"metadata.version": level})


@pytest.mark.parametrize(
    ("level", "release"),
    [(1, "3.0"), (7, "3.3"), (20, "3.8"), (21, "3.9"), (22, "4.0"), (25, "4.0"), (27, "4.1"), (29, "4.2"), (30, "4.3")],
)
def test_a_release_is_told_by_what_it_knows(level: int, release: str) -> None:
    assert release_of(leveled(level)) == release
    assert release_of(leveled(0)) == "older than 3.9"
    assert release_of(leveled(None)) == ""


def test_a_release_that_was_not_tried_is_named_with_those_that_were() -> None:
    tried = f"flows were tried with Kafka {', '.join(TRIED)}"
    for level in (21, 25, 26, 30):
        assert list(release_warnings(EAST, leveled(level))) == []
    assert list(release_warnings(EAST, leveled(NEWER))) == [
        f"cluster 'east' is Kafka of a release newer than 4.3: not tried; {tried}"
    ]
    assert list(release_warnings(EAST, leveled(OLDER))) == [f"cluster 'east' is Kafka 3.8: not tried; {tried}"]
    assert list(release_warnings(EAST, leveled(0))) == [
        f"cluster 'east' is Kafka of a release older than 3.9: not tried; {tried}"
    ]


def test_of_a_cluster_without_a_release_the_apis_tell_whether_it_is_older() -> None:
    assert list(release_warnings(EAST, leveled(None, fetch=17))) == []
    for apis in ({1: (4, 16)}, {}):
        (said,) = release_warnings(EAST, Spoken(apis, {}))
        assert "'east' doesn't tell its release of Kafka, and its APIs are older than those of 3.9: not tried" in said


def test_the_page_of_versions_and_this_constant_have_the_same_releases() -> None:
    text = (ROOT / "docs/operate/kafka-versions.md").read_text()
    rows = re.findall(r"^\| (\d+\.\d+) \| (\d+\.\d+) \|", text, re.MULTILINE)
    assert {release for row in rows for release in row} == set(TRIED)
    assert sorted(TRIED) == list(TRIED)


def test_what_a_target_lacks_of_transactions_is_named() -> None:
    assert without_transactions(EAST, KAFKA_4_3) is None
    for key, name in TRANSACTIONS.items():
        found = KAFKA_4_3._replace(apis={other: KAFKA_4_3.apis[other] for other in KAFKA_4_3.apis if other != key})
        assert f"cluster 'east' has no transactions: it doesn't speak {name}, which" in str(
            without_transactions(EAST, found)
        )


class Telling(Leader):
    """A broker that tells features; None: it is older than the question for them."""

    level: int | None = NEWER

    def answer_api_versions(self, request: object) -> Answer:
        told = super().answer_api_versions(request)
        assert isinstance(told, dict)
        if self.level is None:
            return response("api_versions", 0, 1, {"error_code": 35, "api_keys": []})
        return {
            **told,
            "supported_features": [{"name": "metadata.version", "min_version": 7, "max_version": self.level}],
        }


def test_a_broker_is_asked_for_what_it_speaks_and_knows() -> None:
    answers = Telling()
    with FakeBroker(answers) as broker:
        found = spoken(flow_of(broker).source, "test")
    assert found.features == {"metadata.version": NEWER}
    assert found.apis == answers.versions


@pytest.mark.tier("long")
def test_a_broker_that_does_not_answer_is_no_reason_to_say_anything_else() -> None:
    with FakeBroker(lambda *_: None) as broker:
        flow = flow_of(broker)
        result = FlowPlan("f", "east", "east")
        plan_versions(flow, result)
    assert result.releases == {}
    assert result.exit_code() == 0
    said = [it.message for it in result.findings]
    assert any(
        it.endswith("; which release of Kafka it is, and whether it has transactions, is not known") for it in said
    )


@pytest.fixture
def apis(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """All APIs of the embedded broker are registered; what a test changes of them is told, and gone afterwards."""
    registry.load_all()
    api_versions._answer.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    api_versions._answer.cache_clear()


@pytest.fixture
def without_apis(apis: pytest.MonkeyPatch) -> Iterator[KafkaBroker]:
    """An embedded broker that leaves the APIs of transactions out, as some compatible systems do."""
    for key in TRANSACTIONS:
        apis.delitem(registry.APIS, key)
    with KafkaBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1)])["t"].result(10)
        yield broker


def text_of(broker: KafkaBroker) -> str:
    return f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "{broker.bootstrap}"}}}}
  b: {{properties: {{bootstrap.servers: "{broker.bootstrap}"}}}}
flows:
  f: {{source: a, target: b, topics: [t]}}
"""


def loaded(broker: KafkaBroker) -> tuple[Flow, Config]:
    config = load_text(text_of(broker), env={})
    return config.flows["f"], config


def test_a_target_without_transactions_is_named_before_anything_is_written(
    without_apis: KafkaBroker, tmp_path: Path
) -> None:
    flow, config = loaded(without_apis)
    plan = planning.plan(flow, config, connect_timeout_ms=10_000)
    assert (plan.exit_code(), plan.ready()) == (Unsupported.exit_code, False)
    (found,) = [it for it in plan.findings if it.severity == "error"]
    assert f"cluster 'b' has no transactions: it doesn't speak {', '.join(TRANSACTIONS.values())}" in found.message
    with ControlPlane(flow) as plane:
        plane.connect()
        with pytest.raises(Unsupported, match="has no transactions"):
            plane.create_internal(1)
        assert {name for name in plane.target.topic_names() if "consumer" not in name and "_state" not in name} == {"t"}

    path = tmp_path / "flows.yaml"
    path.write_text(text_of(without_apis))
    command = [sys.executable, "-m", "cli.main", "run", "-c", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == Unsupported.exit_code
    assert done.stderr.count("has no transactions") == 1, "told once, and not tried again"
    assert "setup_tried_again" not in done.stderr
    command[3] = "plan"
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=False)
    (told,) = json.loads(done.stdout)["flows"]
    assert (done.returncode, told["releases"]) == (Unsupported.exit_code, {"a": "", "b": ""})
    assert "releases of Kafka" not in shown(plan), "neither tells one"


def test_a_later_kafka_that_has_dropped_all_that_is_known_is_named() -> None:
    assert only_unknown_versions(EAST, KAFKA_4_3) is None
    assert only_unknown_versions(EAST, Spoken({1: (17, 30), 3: (13, 20)}, {})) is None
    assert str(only_unknown_versions(EAST, Spoken({1: (18, 30), 3: (13, 20)}, {}))) == (
        "cluster 'east' is an unknown, later version of Kafka: it speaks fetch 18 to 30 (known here up to 17)"
    )


@pytest.mark.parametrize("keys", [{1}, {0, 1, 3, 22}, set(registry.load_all()) - {API_VERSIONS}])
def test_an_unknown_version_of_kafka_is_a_clear_message(apis: pytest.MonkeyPatch, keys: set[int]) -> None:
    """Fetch alone: all but reading works. With all of them: librdkafka doesn't get through at all."""
    with KafkaBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1)])["t"].result(10)
        for key in keys:
            apis.setitem(registry.APIS, key, replace(registry.APIS[key], versions=range(50, 52)))
        api_versions._answer.cache_clear()
        flow, config = loaded(broker)
        plan = planning.plan(flow, config, connect_timeout_ms=2_000)
        with pytest.raises(Unsupported, match="unknown, later version of Kafka"):
            check_target(flow)
    said = [it.message for it in plan.findings if "unknown, later version" in it.message]
    assert [it.startswith(f"cluster {name!r} is an unknown, ") for it, name in zip(said, "ab", strict=True)] == [
        True
    ] * 2
    assert all("fetch 50 to 51 (known here up to 17)" in it for it in said)
    assert plan.exit_code() == Unsupported.exit_code


def shown(plan: FlowPlan) -> str:
    """What a terminal of 80 columns shows."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, highlight=False, color_system=None)
    _show(console, plan)
    text = cast("io.StringIO", console.file).getvalue()
    assert max(map(len, text.splitlines())) <= 80
    return text


def test_releases_are_shown_with_what_is_not_told() -> None:
    plan = FlowPlan("f", "a", "b", releases={"a": "newer than 4.3", "b": ""})
    for message in release_warnings(EAST, leveled(NEWER)):
        plan.note(PlanFinding("warning", "cluster", message))
    assert "  releases of Kafka: newer than 4.3 → not told\n" in shown(plan)
