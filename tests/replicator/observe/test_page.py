"""The status page: what it shows of a flow in every state, within bounds, escaped, with nothing from elsewhere."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from replicator.flow.group_members import FlowWorkers, HeldLane, ShownWorker
from replicator.flow.restarts import Stage
from replicator.model.incident_kinds import KINDS
from replicator.model.partition import Partition
from replicator.model.printable import printable
from replicator.observe.conditions import FlowConditions
from replicator.observe.figures import LaneFigures, PartitionFigures
from replicator.observe.history import History
from replicator.observe.lag import Lag
from replicator.observe.metrics import Metrics
from replicator.observe.page import StatusPage, duration_text, size_text
from replicator.observe.shown import PARTITIONS_SHOWN, SETTINGS_SHOWN, TOPICS_SHOWN, Process, as_json, shown_of
from replicator.observe.view import Doing, FlowView, PartitionView
from replicator.observe.worker_figures import WorkerFigures
from replicator.schemas.plan import SchemaConflict
from replicator.schemas.schema import Version
from replicator.schemas.shown import SchemasShown
from replicator.state.run_settings import Paused, RateLimit

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (360, 768, 1280)
HOSTILE = "<script>alert(1)</script>\x1b\u202e"


class At:
    """A clock that goes on by ten seconds when it is looked at, while the wall clock stands still."""

    def __init__(self) -> None:
        self.time_s = 50.0

    def now_s(self) -> float:
        self.time_s += 10
        return self.time_s

    def now_ms(self) -> int:
        return 1_700_000_120_000

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        raise NotImplementedError


def partition(
    topic: str, number: int, doing: Doing = Doing.COPYING, kind: str = "", detail: str = "", lag: Lag | None = None
) -> PartitionView:
    figures = PartitionFigures(1_000, 64_000, 5_000, 1_700_000_100_000)
    return PartitionView(Partition(topic, number), doing, kind, detail, figures, lag or Lag(10, 2.0, 0))


def flow(*partitions: PartitionView, stage: Stage = Stage.RUNNING, name: str = "orders") -> FlowView:
    lanes = {0: LaneFigures(sessions=1, took=[3] + [0] * 13, took_s=0.06)}
    return FlowView(name, "berlin", "paris", stage, tuple(sorted(partitions, key=lambda each: each.at)), lanes)


EVERY_STATE = flow(
    *(partition("orders", number) for number in range(5)),
    *(partition("payments", number) for number in range(2)),
    partition("payments", 2, Doing.WAITING, "target_not_ready", "partition 2 of payments has no leader"),
    partition("payments", 3, Doing.STOPPED, "source_records_gone", "offsets 5000 to 5999 are gone"),
    partition("events", 0, Doing.UNDECIDED),
    partition("events", 1, Doing.GONE),
    partition("events", 3, Doing.PAUSED, "paused", "paused by ann"),
    partition("events", 4, Doing.FAILED_OVER, "failed_over", "topic events was failed over"),
    partition("events", 2, Doing.STOPPED, "record_refused", HOSTILE),
)


def rendered(*views: FlowView) -> str:
    def flows() -> Sequence[FlowView]:
        return views

    clock = At()
    history = History(flows, clock, structlog.get_logger())
    for _ in range(3):
        history.take()
    process = Process("host-1", 4711, "1.2.3", 1_700_000_000_000)
    shown = [shown_of(view, history.samples(view.name)) for view in views]
    return StatusPage(process, lambda: shown, clock).html().decode()


def words(page: str) -> str:
    """What a reader sees."""
    text = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


def test_every_state_is_shown_and_agrees_with_the_metrics() -> None:
    said = words(rendered(EVERY_STATE))
    metrics = Metrics(lambda: [EVERY_STATE], "1.2.3", 100).text().decode()
    [states] = [each for each in text_string_to_metric_families(metrics) if each.name == "eos_flow_partitions"]
    counts = {sample.labels["state"]: int(sample.value) for sample in states.samples}
    assert sum(counts.values()) == 14
    for state, count in counts.items():
        assert f"{state.replace('_', ' ')} {count} partition" in said, (state, count)
    [records] = [each for each in text_string_to_metric_families(metrics) if each.name == "eos_flow_records"]
    assert f"records copied {int(records.samples[0].value):,}" in said
    [lag] = [each for each in text_string_to_metric_families(metrics) if each.name == "eos_flow_lag_records"]
    assert f"lag {int(lag.samples[0].value):,} records" in said
    assert "host-1" in said
    assert "process 4711" in said
    assert "running for 2 min" in said


PAUSED = {"events": Paused(by=f"ann {HOSTILE}", at_ms=1_700_000_000_000, why="it is moved")}
RATES = {"": RateLimit(records_per_s=500), "payments": RateLimit(bytes_per_s=2_048, by="ann", at_ms=1)}


def test_what_is_paused_and_limited_is_shown_with_who_has_set_it() -> None:
    page = rendered(replace(EVERY_STATE, paused=PAUSED, rates=RATES))
    said = words(page)
    assert f"events is paused by ann {printable(HOSTILE)} (it is moved), since 2023-11-14 22:13:20 UTC." in said
    assert "The flow is copied with at most 500 records/s, as the flow file says." in said
    assert "payments is copied with at most 2,048 bytes/s, set by ann." in said
    assert "<script" not in page
    left = words(rendered(replace(EVERY_STATE, paused=PAUSED, rates=RATES, taken_out=("events", "payments"))))
    assert "events (no longer in the flow file) is paused by ann" in left
    assert "payments (no longer in the flow file) is copied with at most 2,048 bytes/s" in left
    many = words(rendered(replace(EVERY_STATE, rates={f"t{n}": RateLimit(records_per_s=n + 1) for n in range(900)})))
    assert many.count("is copied with at most") == SETTINGS_SHOWN
    assert "eos-replicate rate --flow orders -c FILE" in many


def test_an_incident_comes_with_what_to_do_and_the_command() -> None:
    said = words(rendered(EVERY_STATE))
    assert "offsets 5000 to 5999 are gone" in said
    assert KINDS["source_records_gone"].advice in said
    assert "eos-replicate incident list --flow orders" in said
    assert said.index("source_records_gone") < said.index("target_not_ready"), "the gravest first"
    assert "incident list" not in words(rendered(flow(partition("t", 0))))


def test_what_comes_from_a_cluster_is_escaped() -> None:
    page = rendered(EVERY_STATE, flow(name="x"))
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "<script>alert(1)</script>\\u001b\\u202e" in words(page)


def test_nothing_is_loaded_from_elsewhere() -> None:
    page = rendered(EVERY_STATE)
    assert re.findall(r"(?:src|srcset|href|action)\s*=\s*(\S+)", page) == ['"data:,">'], "the icon, which is none"
    assert not re.search(r"url\(|@import", page)


def test_a_flow_that_does_not_run_says_so() -> None:
    assert "this process doesn't start it again" in words(rendered(flow(stage=Stage.OVER)))
    ended = replace(flow(stage=Stage.ENDED), cause=f"no login {HOSTILE}")
    assert "it is started again It has ended by: no login <script>alert(1)</script>\\u001b" in words(rendered(ended))


def test_what_keeps_the_whole_flow_from_copying_stands_above_its_partitions() -> None:
    assert "unreachable" not in words(rendered(EVERY_STATE))
    conditions = FlowConditions({HOSTILE: 1_700_000_000_000, "paris": 1_700_000_060_000}, "it was failed over by ann")
    said = words(rendered(replace(EVERY_STATE, conditions=conditions)))
    assert "No broker of paris has answered since 2023-11-14 22:14:20 UTC" in said
    assert "failed over it was failed over by ann." in said
    assert said.index("of paris") < said.index("lag unknown") < said.index("Partitions that are not copied")


def test_a_flow_that_is_being_failed_over_is_not_shown_as_failed_over() -> None:
    conditions = FlowConditions(being_failed_over="it is being failed over by ann: workers may still copy")
    view = replace(EVERY_STATE, conditions=conditions)
    assert "being failed over it is being failed over by ann: workers may still copy." in words(rendered(view))
    (flow,) = as_json(Process("h", 1, "v", 0), [shown_of(view, ())])["flows"]
    assert (flow["failed_over"], flow["being_failed_over"]) == ("", conditions.being_failed_over)


def test_all_who_share_a_flow_are_shown_whichever_process_is_asked() -> None:
    lanes = tuple(HeldLane(lane=number, since_ms=1_700_000_000_000 + number) for number in range(40))
    others = [ShownWorker(host="h", pid=number, address="/10.0.0.2", lanes=()) for number in range(100, 170)]
    workers = (
        ShownWorker(host=HOSTILE, pid=None, address="/10.0.0.9", lanes=()),
        ShownWorker(host="h", pid=7, address="/10.0.0.1", lanes=lanes, version="1.2.3", generation=2),
        *others,
    )
    members = FlowWorkers(flow="orders", generation=2, lanes=80, workers=workers, unassigned=tuple(range(40, 80)))
    shared = replace(EVERY_STATE, worker=WorkerFigures(rebalances=1, members=members, members_ms=1_700_000_110_000))
    page = rendered(shared)
    said = words(page)
    assert "<script" not in page
    assert "72 processes, of which 50 are shown, as of 2023-11-14 22:15:10 UTC" in said
    assert "h:7 /10.0.0.1 1.2.3 0, 1, 2," in said
    assert "31 and 8 more" in said
    assert "no worker" in said
    assert "Not assigned: 40 lanes (40, 41," in said
    assert "Workers" not in words(rendered(EVERY_STATE))
    shown = as_json(Process("h", 1, "v", 0), [shown_of(shared, [])])["flows"][0]["workers"]
    assert json.loads(json.dumps(shown))["workers"][1]["lanes"][1] == {"lane": 1, "since_ms": 1_700_000_000_001}


@pytest.mark.tier("default")
def test_a_caption_is_no_wider_than_a_phone_although_its_table_scrolls() -> None:
    """It says that the table scrolls, and when it was asked: both were cut off at 360 pixels."""
    [caption] = re.findall(r"^caption \{(.*?)\}", rendered(EVERY_STATE), re.MULTILINE)
    assert "max-width: calc(100vw - " in caption


def test_what_is_shown_is_bounded() -> None:
    many = [partition(f"t{number:04}", 0, Doing.STOPPED, "record_refused", "x" * 200) for number in range(3_000)]
    page = rendered(flow(*many))
    said = words(page)
    assert f"3,000 partitions, of which {PARTITIONS_SHOWN} are shown" in said
    assert f"3,000 source topics, of which {TOPICS_SHOWN} are shown" in said
    assert len(page) < 300_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (0.44, "0.4 s"),
        (59, "59 s"),
        (60, "1 min"),
        (7_500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (200 * 1024**2, "200 MiB")]
)
def test_sizes(count: float, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.tier("full")
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_it_fits_a_phone_a_tablet_and_a_screen(tmp_path: Path) -> None:
    """In a browser, each width in a frame of its own: nothing but tables is wider than the frame, and what was found of
    a partition that isn't copied can be read without scrolling sideways."""
    page = rendered(EVERY_STATE, flow(*(partition("a-topic-with-" + "a-long-" * 20 + "name", n) for n in range(9))))
    frames = "".join(
        f'<iframe width="{width}" height="900" style="border:0" srcdoc="{html.escape(page, quote=True)}"></iframe>'
        for width in WIDTHS
    )
    measure = """onload = () => { document.title = JSON.stringify(
      [...document.querySelectorAll("iframe")].map(frame => {
      const root = frame.contentDocument.documentElement;
      const kept = [...frame.contentDocument.querySelectorAll('[aria-label="Partitions that are not copied"] td.long')];
      const shown = element => element.getBoundingClientRect();
      return [root.scrollWidth, root.clientWidth, frame.contentDocument.querySelectorAll("polyline").length,
        Math.max(...kept.map(cell => shown(cell).right))];
    })) }"""
    file = tmp_path / "frames.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><title></title><body>{frames}<script>{measure}</script>")
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None
    found = json.loads(html.unescape(title[1]))
    assert len(found) == len(WIDTHS)
    for width, (scrolled, shown, lines, right) in zip(WIDTHS, found, strict=True):
        assert scrolled <= shown <= width, f"at {width} pixels the page is {scrolled} wide"
        assert lines >= 2, "both plots are drawn"
        assert right <= shown, f"at {width} pixels what was found ends at {right}"


REFUSED = SchemaConflict(Version(HOSTILE, 2), 7, f"the target has another schema with this id ({HOSTILE} version 1)")
AGO = "2023-11-14 22:13:20 UTC"
SCHEMAS = SchemasShown(9, 1_700_000_000_000, str(REFUSED), subjects=5, waiting=2, refused=1, conflicts=(REFUSED,))


@pytest.mark.tier("default")
def test_schemas_are_counted_and_conflicts_named() -> None:
    page = rendered(replace(EVERY_STATE, schemas=SCHEMAS))
    assert HOSTILE not in page
    assert f"5 subjects with 9 schemas: 2 in sync, 2 waiting, 1 refused ; all were in sync last {AGO}" in words(page)
    assert "1 schema that can't go over" in words(page)
    assert " 2 7 the target has another schema with this id" in words(page)
    assert "eos-replicate schemas --flow orders" in words(page)
    away = SchemasShown(9, 0, "the schema registry of the target doesn't answer", subjects=5)
    said = words(rendered(replace(EVERY_STATE, schemas=away)))
    assert "all were in sync last never. not synced the schema registry of the target doesn't answer" in said
    assert "Schemas" not in words(rendered(EVERY_STATE))
