"""A source that is a mirror itself: whose copies a flow would copy on."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_broker.testing.handle import KafkaBroker
from replicator.config import Flow, load_text
from replicator.inspect import planning
from replicator.inspect.plan_mirrors import mirror_warnings
from replicator.model.origins import Origin, Origins

pytestmark = pytest.mark.tier("default")  # the unit tier is full


@pytest.fixture
def flow() -> Flow:
    text = """\
clusters:
  a: {properties: {bootstrap.servers: "a:1"}}
  b: {properties: {bootstrap.servers: "b:1"}}
flows:
  f: {source: a, target: b, topics: ["^.*"]}
"""
    return load_text(text, env={}).flows["f"]


def hops(*flows: str) -> Origins:
    return frozenset(Origin("id", "t", name) for name in flows)


def test_an_ordinary_cluster_is_no_mirror(flow: Flow) -> None:
    assert list(mirror_warnings(flow, {"t", "heartbeats"}, {}, {"t", "heartbeats", "x.internal"})) == []


def test_copies_of_other_flows_are_named_by_flow(flow: Flow) -> None:
    origins = {"t": hops("g", "h"), "u": hops("g"), "left": hops("g"), "own": hops("f")}
    assert list(mirror_warnings(flow, {"t", "u", "own"}, origins, ())) == [
        "cluster 'a' is a mirror itself: flow 'g' has written t, u; what isn't yet copied to there, or was left out, "
        "isn't here either",
        "cluster 'a' is a mirror itself: flow 'h' has written t; what isn't yet copied to there, or was left out, "
        "isn't here either",
    ]


def test_many_copies_are_counted(flow: Flow) -> None:
    origins = {f"t{number}": hops("g") for number in range(7)}
    (said,) = mirror_warnings(flow, origins.keys(), origins, ())
    assert "t0, t1, t2, t3, t4 and 2 more;" in said


def test_mirrormaker_2_is_known_by_its_checkpoints(flow: Flow) -> None:
    own = {"east.checkpoints.internal", "mm2-offset-syncs.b.internal", "heartbeats", "east.heartbeats"}
    (said,) = mirror_warnings(flow, {"east.t", "t"}, {}, own | {"east.t", "t"})
    assert said == (
        "cluster 'a' is a mirror itself: MirrorMaker 2 copies from 'east' (east.checkpoints.internal), east.t; what it "
        "has doubled or lost stays so"
    )
    (said,) = mirror_warnings(flow, {"t"}, {}, own | {"t"})
    assert "topics, maybe of this flow, under their own names" in said


def test_offset_syncs_alone_say_either(flow: Flow) -> None:
    (said,) = mirror_warnings(flow, {"t"}, {}, {"t", "mm2-offset-syncs.b.internal"})
    assert said.startswith("MirrorMaker 2 reads from cluster 'a', or copies to it (mm2-offset-syncs.b.internal): if")


@pytest.mark.tier("long")
def test_a_chain_of_flows_and_mirrormaker_2_are_found_on_brokers(tmp_path: Path) -> None:
    with ExitStack() as stack:
        brokers = [stack.enter_context(KafkaBroker()) for _ in "abc"]
        for broker, topic in ((brokers[0], "t"), (brokers[1], "east.checkpoints.internal"), (brokers[1], "east.u")):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic(topic, 1)])[topic].result(10)
        clusters = "".join(
            f"  {name}: {{properties: {{bootstrap.servers: '{broker.bootstrap}'}}}}\n"
            for name, broker in zip("abc", brokers, strict=True)
        )
        before = tmp_path / "before.yaml"
        before.write_text(f"clusters:\n{clusters}flows:\n  g: {{source: a, target: b, topics: [t]}}\n")
        command = [sys.executable, "-m", "cli.main", "run", "--standalone", "-c", str(before)]
        process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        stack.callback(process.kill)
        text = f"clusters:\n{clusters}flows:\n  f: {{source: b, target: c, topics: [a.t, east.u]}}\n"
        config = load_text(text, env={})
        mirrors, until_s = list[str](), time.monotonic() + 60
        while len(mirrors) < 2 and time.monotonic() < until_s and process.poll() is None:  # until g has claimed it
            plan = planning.plan(config.flows["f"], config, connect_timeout_ms=10_000)
            mirrors = [it.message for it in plan.findings if "is a mirror itself" in it.message]
    assert len(mirrors) == 2, mirrors
    assert "flow 'g' has written a.t;" in mirrors[0]
    assert "MirrorMaker 2 copies from 'east' (east.checkpoints.internal), east.u;" in mirrors[1]
