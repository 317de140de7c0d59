"""`status`, `top`, the status page and the metrics tell the same of a flow with partitions in every state."""

from __future__ import annotations

import html
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.failing_over import command, failover
from integration_tests.harness.observed import TIMEOUT_S, Observed
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import DEFAULT, Replicator
from integration_tests.harness.two_topics import INCIDENT
from integration_tests.test_incidents_played import LARGE, open_id, resolved
from integration_tests.test_incidents_played import asked as command_asked
from integration_tests.test_metrics import observed
from replicator.model.partition import Partition
from replicator.observe.view import Doing

pytestmark = pytest.mark.tier("long")

BEFORE, AFTER = 10, 5
"""Records of each topic that are copied before anything happens, and that are written after that."""
TOPICS = ("refused", "large", "lost", "again", "deleted", "held", "unseen", "over", "fresh")


class Told(NamedTuple):
    """What one of them says of a partition. `kind`: the incident, or why it waits."""

    kind: str
    position: int | None
    lag_records: int | None


class Expected(NamedTuple):
    """What happens to a partition: its number in the metrics, the incident or reason, and the state in `status`."""

    doing: Doing
    kind: str
    state: str


class Flow:
    """A flow of thirteen partitions."""

    def __init__(self, copying: Copying, deleted_topics: str = "report") -> None:
        self.copying, self.name = copying, copying.name
        self.expected = {
            Partition(copying.topic, number): Expected(Doing.COPYING, "", "in_sync") for number in range(3)
        }
        self._expect("refused", Doing.STOPPED, "record_refused", "stopped")
        self._expect("large", Doing.STOPPED, "record_too_large", "stopped")
        self._expect("lost", Doing.STOPPED, "source_records_gone", "records_lost")
        self._expect("again", Doing.STOPPED, "source_topic_recreated", "source_recreated")
        if deleted_topics == "keep":
            self._expect("deleted", Doing.GONE, "copy_kept", "kept")
        else:
            self._expect("deleted", Doing.WAITING, "source_topic_gone", "topic_missing")
        self._expect("held", Doing.PAUSED, "paused", "paused")
        self._expect("unseen", Doing.STOPPED, "target_topic_deleted", "target_deleted")
        self._expect("over", Doing.FAILED_OVER, "failed_over", "failed_over")
        self._expect("fresh", Doing.STOPPED, "target_topic_recreated", "target_recreated")
        self._expect("others", Doing.STOPPED, "target_not_empty", "stopped")

    def topic(self, name: str) -> str:
        """The source topic of that short name."""
        return f"{self.name}.{name}"

    def _expect(self, name: str, doing: Doing, kind: str, state: str) -> None:
        self.expected[Partition(self.topic(name), 0)] = Expected(doing, kind, state)

    def put(self, name: str, *values: bytes, key: bytes | None = b"key") -> None:
        """Write to a source topic."""
        clients.put(clients.producer(self.copying.source), self.topic(name), *values, key=key)

    def copied(self) -> Replicator:
        """A worker that has copied what was there at first, of which one topic is failed over then."""
        copying = self.copying
        for name in TOPICS:
            clients.create_topic(copying.source, self.topic(name))
            self.put(name, *(b"%d" % number for number in range(BEFORE)))
        clients.create_topic(copying.target, f"{self.topic('refused')}.copy", 1, {"cleanup.policy": "compact"})
        clients.create_topic(copying.target, f"{self.topic('large')}.copy", 1, {"max.message.bytes": "3000"})
        clients.put(clients.producer(copying.source), copying.topic, b"only", partition=0)
        worker = copying.running("", "--shared")
        for name in TOPICS:
            clients.wait_value(copying.target, f"{self.topic(name)}.copy", 0, b"%d" % (BEFORE - 1))
        code, said = failover(copying, "--topics", self.topic("over"))
        assert code in (0, 1), said
        return worker

    def damage(self) -> None:
        """What happens while nobody copies."""
        copying = self.copying
        for name in ("lost", "over", "held"):
            self.put(name, *[b"more"] * AFTER)
        clients.delete_records(copying.source, self.topic("lost"), 0, BEFORE + 2)
        clients.recreate_topic(copying.source, self.topic("again"))
        clients.delete_topic(copying.source, self.topic("deleted"))
        clients.delete_topic(copying.target, f"{self.topic('unseen')}.copy")
        clients.recreate_topic(copying.target, f"{self.topic('fresh')}.copy")
        clients.create_topic(copying.source, self.topic("others"))
        clients.create_topic(copying.target, f"{self.topic('others')}.copy")
        clients.put(clients.producer(copying.target), f"{self.topic('others')}.copy", b"foreign")
        self.put("others", b"first")
        self.put("refused", b"no key", key=None)
        self.put("large", LARGE)


def metrics(asked: Observed, flow: Flow) -> dict[Partition, tuple[Doing, Told]]:
    """What /metrics says."""
    found: dict[Partition, dict[str, Any]] = {}
    for (name, labels), value in asked.samples().items():
        of = dict(labels)
        if "partition" in of and of["flow"] == flow.name:
            row = found.setdefault(Partition(of["topic"], int(of["partition"])), {})
            row[name.removeprefix("eos_partition_")] = of.get("kind", value)
    return {
        at: (Doing(int(row["state"])), Told(row.get("cause", ""), row.get("position"), row.get("lag_records")))
        for at, row in found.items()
    }


def status(flow: Flow) -> dict[Partition, tuple[str, Told]]:
    """What `status` says."""
    _, said = flow.copying.asked("status")
    return {
        Partition(row["source_topic"], row["partition"]): (
            row["state"],
            Told(row["incident"], row["position"], row["lag_records"]),
        )
        for row in said["partitions"]
    }


def page(asked: Observed) -> dict[str, list[str]]:
    """State, cause and position of each partition that the page shows as not copied, without its markup."""
    _, text = asked.get("/")
    text = re.sub(r'<span class="narrow">.*?</span>', "", text)  # the heading's word, on narrow screens
    table = text[text.index("<caption>", text.index("Partitions that are not copied")) :]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table[: table.index("</table>")], re.DOTALL)
    cells = {name: re.findall(r"<td.*?>(.*?)</td>", row, re.DOTALL) for name, row in rows}
    return {
        re.sub(r"<.*?>", "", name): [re.sub(r"<.*?>", "", cell).strip() for cell in row] for name, row in cells.items()
    }


def lags_of_topics(flow: Flow, told: Mapping[Partition, Told]) -> dict[str, float | None]:
    """The lag in records of each topic, of what was told of its partitions: that of topics that have gone or were
    failed over isn't counted, nor one that isn't known of a partition that waits."""
    found: dict[str, float | None] = {}
    for at, it in told.items():
        counts = flow.expected[at].doing not in (Doing.GONE, Doing.FAILED_OVER) and it.lag_records is not None
        found[at.topic] = (found.get(at.topic) or 0) + (it.lag_records or 0 if counts else 0)
    return found


def lags_on_page(asked: Observed) -> dict[str, float | None]:
    """The lag in records of each topic in the page's table of topics, and that of the flow, which has no name."""
    _, text = asked.get("/")
    table = text[text.index("<h3>Topics</h3>") :]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>\s*(.*?)</tr>', table[: table.index("</table>")], re.DOTALL)
    cells = {name: re.findall(r'<td class="n">(.*?)</td>', row, re.DOTALL)[0] for name, row in rows}
    cells[""] = re.findall(r"<dt>lag</dt><dd>(.*?) record", text)[0]
    return {name: float(re.sub(r"\D", "", lag)) if re.search(r"\d", lag) else None for name, lag in cells.items()}


@pytest.mark.parametrize("deleted_topics", ["report", "keep"])
def test_they_tell_the_same_of_partitions_in_every_state(make_copying: MakeCopying, deleted_topics: str) -> None:
    copying = make_copying(partitions=3, deleted_topics=deleted_topics, limits={"discovery_interval_ms": 1_000})
    flow = Flow(copying, deleted_topics)
    copying.file.write(topics=[f"^{flow.name}[.].*"])
    asked = observed(copying)
    worker = flow.copied()
    command(copying, "pause", "--topics", flow.topic("held"))
    assert worker.stop() == 0, worker.tail()
    flow.damage()
    worker = copying.running("", "--shared")
    held_back = clients.transactional(copying.source, f"{flow.name}-open")
    held_back.begin_transaction()
    clients.put(held_back, copying.topic, b"not committed", partition=2)
    doing = {at: it.doing for at, it in flow.expected.items()}

    def differing() -> list[object]:
        now = {at: row[0] for at, row in metrics(asked, flow).items()}
        return [(at, doing.get(at), now.get(at)) for at in now.keys() | doing.keys() if doing.get(at) != now.get(at)]

    wait_until(lambda: not differing(), "every state", lambda: str((differing(), metrics(asked, flow), status(flow))))
    asked.wait(
        "a transaction holds records back",
        lambda it: it.value("eos_partition_held_back_records", flow=flow.name, topic=copying.topic, partition="2") == 1,
    )

    by_status, by_metrics = status(flow), metrics(asked, flow)
    assert {at: row[0] for at, row in by_status.items()} == {at: it.state for at, it in flow.expected.items()}
    told = {at: row[1] for at, row in by_metrics.items()}
    assert {at: it.kind for at, it in told.items()} == {at: it.kind for at, it in flow.expected.items()}
    for at, (_, said) in by_status.items():
        assert said.position == told[at].position, at
        assert said.lag_records == told[at].lag_records, at
        if flow.expected[at].doing is Doing.STOPPED:
            assert said.kind == told[at].kind, at

    apart = {at for at, it in flow.expected.items() if it.doing not in (Doing.COPYING, Doing.GONE)}
    _, top = copying.asked("top")
    assert {
        Partition(row["topic"], row["partition"]): (row["state"], row["kind"], row["position"])
        for row in top["not_copied"]
    } == {at: (doing[at].name.lower(), told[at].kind, told[at].position) for at in apart}
    shown = page(asked)
    assert {at: (row[1], row[2]) for at, row in shown.items()} == {
        str(at): (told[at].kind, "none" if told[at].position is None else f"{told[at].position:.0f}") for at in apart
    }
    lags = lags_of_topics(flow, told)
    by_top, by_page = {row["name"]: row["lag_records"] for row in top["topics"]}, lags_on_page(asked)
    whole = asked.value("eos_flow_lag_records", flow=flow.name)
    assert whole == sum(lag or 0 for lag in lags.values()) == top["lag_records"] == by_page.pop("")
    assert by_top == by_page
    assert {name: lag or 0 for name, lag in by_top.items()} == lags
    counted = {state.name.lower(): sum(it is state for it in doing.values()) for state in Doing}
    assert top["partitions"] == {state: number for state, number in counted.items() if number}
    for state, number in counted.items():
        assert asked.value("eos_flow_partitions", flow=flow.name, state=state) == number
    held_back.abort_transaction()
    assert worker.stop() == INCIDENT, worker.tail()


def test_they_tell_the_position_that_a_decision_has_given(make_copying: MakeCopying) -> None:
    """Also where nothing comes afterwards: the lag doesn't get older."""
    copying = make_copying(partitions=1)
    clients.create_topic(copying.target, copying.copy, 1, {"cleanup.policy": "compact"})
    asked = observed(copying)
    worker = copying.running("", "--shared")
    clients.put(clients.producer(copying.source), copying.topic, b"copied", key=b"key")
    clients.put(clients.producer(copying.source), copying.topic, b"refused", key=None)
    resolved(copying, open_id(copying, "record_refused", copying.topic, worker), "--skip", "skipped")
    labels = {"flow": copying.name, "topic": copying.topic, "partition": "0"}
    _, said = copying.asked("status")
    assert [(row["position"], row["lag_records"]) for row in said["partitions"]] == [(2, 0)]
    asked.wait("the position", lambda it: it.value("eos_partition_position", **labels) == 2)
    asked.wait("no lag", lambda it: it.value("eos_partition_lag_records", **labels) == 0)
    assert asked.value("eos_partition_lag_seconds", **labels) == 0
    assert worker.stop() == 0, worker.tail()


def test_they_tell_the_same_of_topics_that_were_created_again_while_the_flow_runs(make_copying: MakeCopying) -> None:
    """The process has read positions before that are gone with the target topics."""
    copying = make_copying(partitions=1, limits={"discovery_interval_ms": 1_000})
    names = {word: f"{copying.name}.{word}" for word in ("target", "both")}
    left = {Partition(names["target"], 0): BEFORE, Partition(names["both"], 0): AFTER}
    copying.file.write(topics=[f"^{copying.name}[.].*"])
    asked = observed(copying)
    for name in names.values():
        clients.create_topic(copying.source, name)
        clients.put(clients.producer(copying.source), name, *[b"old"] * BEFORE)
    worker = copying.running("", "--shared")
    wait_until(
        lambda: {told.position for at, (_, told) in metrics(asked, Flow(copying)).items() if at in left} == {BEFORE},
        "copied",
        worker.tail,
    )
    for name in names.values():
        clients.recreate_topic(copying.target, f"{name}.copy")
    clients.recreate_topic(copying.source, names["both"])
    clients.put(clients.producer(copying.source), names["both"], *[b"new"] * AFTER)
    for name in names.values():
        open_id(copying, "target_topic_recreated", name, worker)

    kind = "target_topic_recreated"
    expected = {where: Told(kind, None, lag) for where, lag in left.items()}
    by_status = status(Flow(copying))
    assert {where: by_status[where][1] for where in left} == expected

    def by_metrics() -> dict[Partition, Told]:
        found = {name: told for name, (_, told) in metrics(asked, Flow(copying)).items()}
        return {where: found[where] for where in left}

    wait_until(lambda: by_metrics() == expected, "metrics", lambda: str(by_metrics()))
    _, top = copying.asked("top")
    assert {
        Partition(row["topic"], row["partition"]): (row["kind"], row["position"]) for row in top["not_copied"]
    } == dict.fromkeys(left, (kind, None))
    assert {row["name"]: row["lag_records"] for row in top["topics"] if row["name"] in names.values()} == {
        where.topic: lag for where, lag in left.items()
    }
    assert top["lag_records"] == asked.value("eos_flow_lag_records", flow=copying.name) == BEFORE + AFTER
    shown = {row["topic"]: row for row in command_asked(copying, "position", "show")[1]["flows"][0]["partitions"]}
    for where, lag in left.items():
        row = shown[where.topic]
        assert (row["position"], row["lag_records"], row["wrong"].split(":")[0]) == (None, lag, kind)
    assert "both topics were created again" in shown[names["both"]]["wrong"]
    assert worker.stop() == INCIDENT, worker.tail()


def test_they_tell_that_the_settings_of_another_file_hold(make_copying: MakeCopying) -> None:
    """The flow file is put back to what it was, and the flow has had that one before: until it is applied."""
    copying = make_copying(partitions=1)
    asked = observed(copying)
    worker = copying.running("", "--shared")
    worker.wait_event("lane_started", generation=1)
    copying.file.write(commit={"linger_ms": 7})
    worker.signal(signal.SIGHUP)
    worker.wait_event("lane_started", generation=2)
    assert asked.value("eos_flow_other_settings", flow=copying.name) == 0
    copying.file.write(commit={"linger_ms": DEFAULT})
    worker.signal(signal.SIGHUP)
    worker.wait_event("file_is_older", generation=2)
    asked.wait("it goes on", lambda it: it.ready()[0])
    said = copying.asked("status")[1]["other_settings"]
    assert "eos-replicate apply" in said
    assert asked.value("eos_flow_other_settings", flow=copying.name) == 1
    assert asked.ready()[1][copying.name]["other_settings"] == said
    assert copying.asked("top")[1]["other_settings"] == said
    assert said in html.unescape(asked.get("/")[1])
    shown = subprocess.run(
        [sys.executable, "-m", "cli.main", "top", "--once", "-c", str(copying.file.path)],
        capture_output=True, text=True, check=True, timeout=TIMEOUT_S,
    ).stdout  # fmt: skip
    assert said in " ".join(shown.split())
    copying.load.mixed(50)
    copying.wait_copied()
    assert copying.said("apply")[0] == 0
    worker.wait_event("lane_started", generation=3)
    asked.wait("its own settings", lambda it: it.value("eos_flow_other_settings", flow=copying.name) == 0)
    assert "other_settings" not in asked.ready()[1][copying.name]
    assert copying.asked("top")[1]["other_settings"] == ""
    copying.finish(worker)
