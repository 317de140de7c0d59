"""What `status`, `top`, the status page and the metrics tell of a flow's partitions, and whether it is the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from integration_tests.harness.copying import Copying
from integration_tests.harness.observed import Observed
from integration_tests.harness.processes import wait_until
from replicator.inspect.flow_status import State
from replicator.model.partition import Partition
from replicator.observe.view import Doing


class Told(NamedTuple):
    """What one of them says of a partition. `kind`: the incident, or why it waits."""

    kind: str
    position: int | None
    lag_records: int | None


class Expected(NamedTuple):
    """What happens to a partition: its number in the metrics, the incident or reason, and the state in `status`."""

    doing: Doing
    kind: str
    state: State


IN_SYNC = Expected(Doing.COPYING, "", "in_sync")


def metrics(asked: Observed, flow: str) -> dict[Partition, tuple[Doing, Told]]:
    """What /metrics says."""
    found: dict[Partition, dict[str, Any]] = {}
    for (name, labels), value in asked.samples().items():
        of = dict(labels)
        if "partition" in of and of["flow"] == flow:
            row = found.setdefault(Partition(of["topic"], int(of["partition"])), {})
            row[name.removeprefix("eos_partition_")] = of.get("kind", value)
    return {
        at: (Doing(int(row["state"])), Told(row.get("cause", ""), row.get("position"), row.get("lag_records")))
        for at, row in found.items()
    }


def status(copying: Copying) -> dict[Partition, tuple[str, Told]]:
    """What `status` says."""
    _, said = copying.asked("status")
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
    heading = text.find("Partitions that are not copied")
    if heading < 0:
        return {}
    table = text[text.index("<caption>", heading) :]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table[: table.index("</table>")], re.DOTALL)
    cells = {name: re.findall(r"<td.*?>(.*?)</td>", row, re.DOTALL) for name, row in rows}
    return {
        re.sub(r"<.*?>", "", name): [re.sub(r"<.*?>", "", cell).strip() for cell in row] for name, row in cells.items()
    }


def lags_of_topics(told: Mapping[Partition, tuple[Doing, Told]]) -> dict[str, float]:
    """The lag in records of each topic, of what was told of its partitions: that of topics that have gone or were
    failed over isn't counted, nor one that isn't known of a partition that waits."""
    found: dict[str, float] = {}
    for at, (doing, it) in told.items():
        counts = doing not in (Doing.GONE, Doing.FAILED_OVER)
        found[at.topic] = found.get(at.topic, 0) + (it.lag_records or 0 if counts else 0)
    return found


def lags_on_page(asked: Observed) -> dict[str, float | None]:
    """The lag in records of each topic in the page's table of topics, and that of the flow, which has no name."""
    _, text = asked.get("/")
    table = text[text.index("<h3>Topics</h3>") :]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>\s*(.*?)</tr>', table[: table.index("</table>")], re.DOTALL)
    cells = {name: re.findall(r'<td class="n">(.*?)</td>', row, re.DOTALL)[0] for name, row in rows}
    cells[""] = re.findall(r"<dt>lag</dt><dd>(.*?)(?: record|<)", text)[0]
    return {name: float(re.sub(r"\D", "", lag)) if re.search(r"\d", lag) else None for name, lag in cells.items()}


def wait_doing(asked: Observed, copying: Copying, expected: Mapping[Partition, Expected]) -> None:
    """Until the metrics say of each partition what it does, and why."""
    wanted = {at: (it.doing, it.kind) for at, it in expected.items()}

    def differing() -> list[object]:
        now = {at: (doing, told.kind) for at, (doing, told) in metrics(asked, copying.name).items()}
        return [(at, wanted.get(at), now.get(at)) for at in now.keys() | wanted if wanted.get(at) != now.get(at)]

    wait_until(lambda: not differing(), "every state", lambda: str((differing(), status(copying))))


def assert_status(
    asked: Observed,
    copying: Copying,
    expected: Mapping[Partition, Expected],
    unknown: Iterable[Partition] = (),
    *,
    compared: bool = True,
) -> None:
    """`status` says what is expected, and the same as the metrics. `unknown`: partitions of which this process doesn't
    know yet where they stand. `compared`: whether `status` could ask both clusters what stops them."""
    by_status, by_metrics = status(copying), metrics(asked, copying.name)
    assert {at: state for at, (state, _) in by_status.items()} == {at: it.state for at, it in expected.items()}
    assert {at: (doing, told.kind) for at, (doing, told) in by_metrics.items()} == {
        at: (it.doing, it.kind) for at, it in expected.items()
    }
    for at, (_, said) in by_status.items():
        told = by_metrics[at][1]
        if at in unknown:
            assert (told.position, told.lag_records) == (None, None), at
        else:
            assert (said.position, said.lag_records) == (told.position, told.lag_records), at
        if expected[at].doing is Doing.STOPPED and (compared or said.kind):
            assert said.kind == told.kind, at


def assert_shown(asked: Observed, copying: Copying) -> None:
    """`top` and the status page show what the metrics say, of partitions, of topics and of the whole flow."""
    by_metrics = metrics(asked, copying.name)
    apart = {at for at, (doing, _) in by_metrics.items() if doing not in (Doing.COPYING, Doing.GONE)}
    _, top = copying.asked("top")
    assert {
        Partition(row["topic"], row["partition"]): (row["state"], row["kind"], row["position"])
        for row in top["not_copied"]
    } == {at: (doing.name.lower(), told.kind, told.position) for at, (doing, told) in by_metrics.items() if at in apart}
    assert {at: (row[0], row[1], re.sub(r"(?<=\d)\D+(?=\d)", "", row[2])) for at, row in page(asked).items()} == {
        str(at): (
            by_metrics[at][0].name.lower().replace("_", " "),
            (told := by_metrics[at][1]).kind,
            "none" if told.position is None else f"{told.position:.0f}",
        )
        for at in apart
    }
    lags, whole = lags_of_topics(by_metrics), asked.value("eos_flow_lag_records", flow=copying.name)
    by_top, by_page = {row["name"]: row["lag_records"] for row in top["topics"]}, lags_on_page(asked)
    assert whole == top["lag_records"] == by_page.pop("")
    assert whole is None or whole == sum(lags.values())
    assert by_top == by_page
    assert {name: lag or 0 for name, lag in by_top.items()} == lags
    counted = {state.name.lower(): sum(doing is state for doing, _ in by_metrics.values()) for state in Doing}
    assert top["partitions"] == {state: number for state, number in counted.items() if number}
    for state, number in counted.items():
        assert asked.value("eos_flow_partitions", flow=copying.name, state=state) == number
