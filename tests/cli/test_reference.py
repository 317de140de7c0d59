"""The generated pages: nothing of the code is missing on them, and nothing is left that the code doesn't have."""

from __future__ import annotations

import ast
import re

import click
import pytest

from cli import main
from cli.reference import commands, configuration, log_events
from cli.reference.log_fields import FIELDS
from cli.reference.log_meanings import EVENTS
from replicator.config.models import Commit, Limits
from replicator.config.sections import ClusterSection, FileSection, FlowSection


def test_every_command_and_option_has_a_place() -> None:
    page = commands.page()
    for words, command in commands.walk(main.group):
        heading = f"\n## {' '.join(('eos-replicate', *words))}\n"
        assert page.count(heading) == 1
        section = page.partition(heading)[2].partition("\n## ")[0]
        named = re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE)
        for option in command.params:
            if isinstance(option, click.Option):
                assert any(option.opts[0] in re.split("[ ,/]+", text) for text in named), (words, option.opts)
        assert "Examples:" in section, words


def test_links_on_the_page_of_commands_lead_to_headings() -> None:
    page = commands.page()
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    links = re.findall(r"\]\(#([^)]+)\)", page)
    assert len(links) > 10
    assert set(links) <= headings


def test_every_key_of_a_flow_file_has_a_row_with_its_meaning() -> None:
    page = configuration.page()
    for model in (FileSection, ClusterSection, FlowSection, Commit, Limits):
        for key in model.model_fields:
            assert re.search(rf"^\| `{key}` \| .+ \| .+ \| .+ \|$", page, re.MULTILINE), key
    assert "| duration, 1s to 15m | `30000` (30s) |" in page


def test_every_log_event_and_field_has_a_meaning_and_no_other() -> None:
    found = log_events.found()
    assert len(found) > 30
    assert found.keys() == EVENTS.keys()
    assert {field for event in found.values() for field in event.fields} == FIELDS.keys()
    assert found["incident"].level == "error"
    assert {"topic", "partition", "offset", "advice"} <= found["incident"].fields.keys()
    assert found["flow_ended"].level == "error, debug"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("self._log.info('a', x=1, y=2)", [("a", "info", ["x", "y"])]),
        ("log.exception('b')", [("b", "exception", [])]),
        ("message.error()\nmath.log(1)\nother.info('c')", []),
    ],
)
def test_which_calls_are_events(code: str, expected: object) -> None:
    assert list(log_events.calls(ast.parse(code))) == expected


def test_an_event_whose_name_is_not_in_the_code_is_refused() -> None:
    with pytest.raises(TypeError, match="text as it stands"):
        list(log_events.calls(ast.parse("log.info(name, x=1)")))
