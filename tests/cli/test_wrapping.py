"""Lines for people: wrapped between words on a terminal, with names and commands that can be copied."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cli.commands import plan as plans
from cli.commands import schemas
from cli.options import print_wrapped, wrapped
from replicator.inspect.flow_plan import FlowPlan, PlanFinding, TopicPlan
from replicator.kafka.admin import TopicSpec
from replicator.schema_sync.sync import RegistriesCompared
from replicator.schemas.plan import SchemaConflict, SchemaPlan
from replicator.schemas.schema import Registry, Schema, Version

SENTENCE = "the flow has had this file before, and workers run the settings of another generation than that"
RIGHT = "Write on the transactional ids eos-replicate.orders.* of the cluster 'west', for the user that the file names"


def printed(text: str, *, terminal: bool) -> list[str]:
    said = io.StringIO()
    print_wrapped(Console(width=80, file=said, force_terminal=terminal, color_system=None), text)
    return said.getvalue().splitlines()


def test_a_sentence_is_wrapped_on_a_terminal_only() -> None:
    assert printed(f"  {SENTENCE}", terminal=False) == [f"  {SENTENCE}"]
    assert printed(f"  {SENTENCE}", terminal=True) == [
        "  the flow has had this file before, and workers run the settings of another",
        "      generation than that",
    ]


@pytest.mark.parametrize(
    "command",
    [
        "eos-replicate incident resolve 3f2a9c1d8e70 --restart-topic --why TEXT -c FILE.",
        "kafka-transactions.sh --bootstrap-server west:1,west:2 abort --topic t --partition 0 --start-offset 12345",
        "payments." + "card-transactions" * 9,
    ],
)
def test_a_command_and_a_name_stay_whole(command: str) -> None:
    lines = wrapped(f"    {SENTENCE}: {command} {SENTENCE}", 79, indent=6).splitlines()
    assert f"      {command}" in [line.removesuffix(" the flow has had") for line in lines]
    assert [line for line in lines if len(line) > 79 and command not in line] == []


def test_a_command_that_is_only_named_is_no_command_to_copy() -> None:
    text = f"  eos-replicate coupled says why: {SENTENCE} {SENTENCE} -c FILE"
    assert max(map(len, wrapped(text, 79, indent=6).splitlines())) <= 79


def test_what_schemas_says_fits_a_terminal() -> None:
    said = io.StringIO()
    conflict = SchemaConflict(
        Version("payments.card-transactions-value", 7), 12, f"id 12 is another schema; {SENTENCE}"
    )
    source = Registry({conflict.version: Schema(conflict.version, 12, "{}")})
    compared = RegistriesCompared(source, Registry(), SchemaPlan(3, conflicts=(conflict,)))
    console = Console(width=80, file=said, force_terminal=True, color_system=None)
    schemas._show(console, "payments." + "x" * 40, compared, {}, applies=False)
    lines = said.getvalue().splitlines()
    assert max(map(len, lines)) <= 80, lines
    assert "can't go over: " in " ".join(lines)


def planned(item: FlowPlan) -> list[str]:
    said = io.StringIO()
    plans._show(Console(width=80, file=said, force_terminal=True, color_system=None), item)
    return said.getvalue().splitlines()


def test_names_in_a_plan_are_whole_and_what_else_it_says_fits_a_terminal() -> None:
    for length in (5, 17, 18, 19, 40, 120):  # the table's names fit up to 17 each
        assert_fits(length)


@pytest.mark.tier("default")
def test_a_topic_of_the_flow_s_own_without_configs_is_named_with_its_size_alone() -> None:
    item = FlowPlan("orders", "east", "west")
    item.internal.append(TopicSpec("__eos.orders.lanes.1", 1, -1, {}))
    item.internal.append(TopicSpec("__eos.orders.control", 1, -1, {"cleanup.policy": "compact"}))
    said = [line for line in planned(item) if line.startswith("  create")]
    assert said == [
        "  create __eos.orders.lanes.1 with 1 partition",
        "  create __eos.orders.control with 1 partition: cleanup.policy=compact",
    ]


def assert_fits(length: int) -> None:
    item = FlowPlan("orders", "east", "west")
    source, target = "s" * length, "t" * length
    item.topics.append(TopicPlan(source, target, 3, "create"))
    item.engine = f"engine records, because batches can't honour {SENTENCE}; {SENTENCE}"
    item.unchecked.append(RIGHT)
    item.findings.append(PlanFinding("warning", "file", SENTENCE))
    lines = planned(item)
    assert [line for line in lines if len(line) > 80 and source not in line and target not in line] == []
    assert sum(line.count(source) + line.count(target) for line in lines) >= 2, lines
    assert RIGHT in " ".join(" ".join(lines).split())
