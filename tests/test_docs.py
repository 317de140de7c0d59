"""The documents are true: commands exist, examples load, links lead somewhere, tables are complete."""

from __future__ import annotations

import ast
import html
import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli import main
from cli.demo import show
from cli.demo.model import DemoResult, Progress, Settings
from cli.reference.__main__ import PAGES
from cli.streams import STREAM_FAILED
from replicator import config
from replicator.lane.partition import Reason
from replicator.model import checkpoint, errors
from replicator.model.errors import ConfigError
from replicator.model.incident_kinds import KINDS
from replicator.spark import executors

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
RUN_ELSEWHERE = {"getting-started.md": "integration_tests/test_getting_started.py"}
"""Pages of which a test runs all commands."""
DIFFERENT = 1  # of reconcile and of the demos
EVIDENCE = checkpoint.Evidence(
    generation=1, owner="", source_topic="", source_cluster="", source_topic_id="", target_topic_id="", map_topic_id="x"
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"(?<!\\)\|")
"""The line at which a cell begins or ends."""


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (path.name, body) for path in DOCUMENTS for found, body in BLOCK.findall(path.read_text()) if found == language
    ]


def shell_lines() -> list[tuple[str, str]]:
    lines = [
        (name, line.partition(" #")[0].strip().removeprefix("$ "))
        for name, body in blocks("sh")
        if name not in RUN_ELSEWHERE
        for line in body.splitlines()
    ]
    return [(name, line) for name, line in lines if line and not line.startswith("#")]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(("document", "line"), shell_lines())
def test_every_command_exists_and_takes_its_options(document: str, line: str) -> None:
    program, *arguments = shlex.split(line)
    if program == "make":
        assert {word for word in arguments if "=" not in word} <= make_targets(), document
        return
    if program in ("uv", "pip"):
        installed = re.fullmatch(r"\.(?:\[([a-z]+)\])?", arguments[-1])
        assert installed is not None, f"{document}: {line}"
        assert installed[1] is None or installed[1] in EXTRAS, f"{document}: {line}"
        return
    assert program == "eos-replicate", f"{document}: {line}"
    command = main.LazyGroup(name="eos-replicate").get_command(None, arguments[0])  # type: ignore[arg-type]
    if isinstance(command, click.Group):
        arguments = arguments[1:]
        command = command.get_command(None, arguments[0])  # type: ignore[arg-type]
    assert command is not None, f"{document}: no command {arguments[0]}"
    known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    used = {word.partition("=")[0] for word in arguments[1:] if word.startswith("-")}
    assert used <= known, f"{document}: {line}"


@pytest.mark.tier("default")
def test_no_block_of_commands_makes_the_same_new_directory_twice() -> None:
    """`--out` takes a directory that isn't there, so the second of such commands would be refused."""
    for document, block in blocks("sh"):
        made = re.findall(r" --out (\S+)", block)
        assert len(made) == len(set(made)), (document, block)


CLUSTERS_AND_FLOWS = """\
clusters: {a: {properties: {bootstrap.servers: "a:1"}}, b: {properties: {bootstrap.servers: "b:1"}}}
flows: {f: {source: a, target: b, topics: [t]}}
"""


@pytest.mark.parametrize(("document", "text"), blocks("yaml"))
def test_every_flow_file_in_the_documents_is_valid(document: str, text: str) -> None:
    whole = text if "clusters:" in text else CLUSTERS_AND_FLOWS + text  # a page may show another section alone
    loaded = config.load_text(whole, env={"METRICS_TOKEN": "token"}, name=document)
    assert loaded.flows


def anchors(path: Path) -> set[str]:
    """What a link into a page may name: its headings, as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)]+))?\)", document.read_text())
    for link, anchor in links:
        if "://" in link:
            continue
        leads_to = document.parent / link if link else document
        assert leads_to.exists(), link
        assert not anchor or anchor in anchors(leads_to), f"{link}#{anchor}"


def torn_rows(text: str) -> list[str]:
    """Lines of tables that no page shows as a row: they have no header, another number of cells, or a paragraph or an
    item of a list directly before them, whose text they become."""
    outside = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.M | re.S)
    torn, table, before = [], list[str](), ""
    for line in [*(it.strip() for it in outside.splitlines()), ""]:
        if line.startswith("|"):
            table.append(line)
            continue
        if table:
            cells = len(CELL.findall(table[0]))
            whole = not before or before.endswith("-->")
            headed = whole and len(table) > 1 and re.fullmatch(r"\|(?: *:?-+:? *\|)+", table[1]) is not None
            torn += [row for row in table if not headed or len(CELL.findall(row)) != cells]
        table, before = [], line
    return torn


def test_every_row_of_a_table_stands_under_its_header() -> None:
    assert {str(path.relative_to(ROOT)): found for path in DOCUMENTS if (found := torn_rows(path.read_text()))} == {}


@pytest.mark.tier("default")
@pytest.mark.parametrize(
    ("text", "torn"),
    [
        ("| a | b |\n|---|---|\n| 1 | `x` |\n", []),
        ("<!-- made -->\n| a |\n|---|\n| 1 |\n<!-- end -->\n", []),
        ("```\n| a |\n```\n", []),
        ("| a |\n|---|\n\n| 1 |\n", ["| 1 |"]),
        ("- an item\n  of two lines\n| 1 | 2 |\n", ["| 1 | 2 |"]),
        ("Text.\n| a |\n|---|\n", ["| a |", "|---|"]),
        ("| a |\n|---|\n| 1 | 2 |\n", ["| 1 | 2 |"]),
    ],
)
def test_a_row_without_a_header_is_found(text: str, torn: list[str]) -> None:
    assert torn_rows(text) == torn


def test_every_command_is_named_in_the_readme_or_the_changelog() -> None:
    text = (ROOT / "README.md").read_text() + (ROOT / "CHANGELOG.md").read_text()
    assert [name for name in main.LAZY if name not in text] == []


def test_the_readme_names_the_kafka_that_the_tests_run() -> None:
    harness = (ROOT / "integration_tests/harness/kafka_container.py").read_text()
    (version,) = re.findall(r'^IMAGE = .*"apache/kafka:(.*)"', harness, re.MULTILINE)
    assert f"Apache Kafka **{version}**" in (ROOT / "README.md").read_text()


def test_every_incident_of_the_code_has_a_kind() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "replicator").rglob("*.py"))
    named = set(re.findall(r'Incident\(\s*"([a-z_]+)"', code))
    named |= set(re.findall(r'_stop\(\s*\w+,\s*"([a-z_]+)"', code))
    named |= set(re.findall(r'KafkaError\.\w+: \(\s*"([a-z_]+)"', code))
    checks = (ROOT / "replicator/model/contradictions.py").read_text().partition("checks = (")[2]
    named |= set(re.findall(r'^\s+"([a-z_]+_[a-z_]+)",$', checks, re.MULTILINE))
    assert len(named) > 25
    assert sorted(named - KINDS.keys()) == []


def test_every_kind_of_incident_is_one_that_the_code_finds() -> None:
    sources = [path for path in (ROOT / "replicator").rglob("*.py") if path.name != "incident_kinds.py"]
    constants = {
        node.value
        for text in (path.read_text() for path in sources)
        if any(f'"{kind}"' in text for kind in KINDS)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
    }
    assert sorted(KINDS.keys() - constants) == []


def test_every_kind_of_incident_is_explained_as_the_program_does() -> None:
    documented = (ROOT / "docs/operate/incidents.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)` \| (.+) \| (.+) \| (.+) \|$", documented, re.MULTILINE)
    assert {row[0]: row[1:] for row in rows} == {
        name: (kind.found, kind.means, kind.advice) for name, kind in KINDS.items()
    }
    assert all(all(texts) for texts in ((kind.found, kind.means, kind.advice) for kind in KINDS.values()))


def test_no_incident_has_other_advice_than_the_page() -> None:
    """What is printed is `detail`, which says what was found, and the advice of `incident_kinds`."""
    own = ROOT / "replicator/model/errors.py"  # hands on what it has
    calls = [
        (path.relative_to(ROOT).as_posix(), node.lineno)
        for package in ("replicator", "cli")
        for path in (ROOT / package).rglob("*.py")
        if path != own and "advice" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Incident"
        if any(given.arg == "advice" for given in node.keywords)
    ]
    assert calls == []


def test_every_module_is_named_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text().partition("## Every module")[2]
    sections = re.findall(r"^### `([\w/]+)/`\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL)
    named = {f"{place}/{name}" for place, body in sections for name in re.findall(r"`([a-z_0-9]+)`", body)}
    heads = {
        f"{place}/{name}"
        for place, body in sections
        for head in re.findall(r"^- ([^:]+):", body, re.MULTILINE)
        for name in re.findall(r"`([a-z_0-9]+)`", head)
    }
    modules = {
        str(path.relative_to(ROOT).with_suffix(""))
        for package in ("replicator", "cli", "embedded_broker", "kafka_records")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert "embedded_broker/api" in [place for place, _ in sections]  # one file for each Kafka API: named as a group
    assert sorted(name for name in modules - named if not name.startswith("embedded_broker/api/")) == []
    assert sorted(heads - modules) == []


def test_every_path_in_the_architecture_exists() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    paths = re.findall(
        r"`((?:replicator|cli|embedded_broker|kafka_records|tests|integration_tests|configs|docs)/[\w/.]*)`", text
    )
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_reason_to_wait_is_explained() -> None:
    documented = (ROOT / "docs/operate/incidents.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)` \| .+ \| .+ \|$", documented, re.MULTILINE)
    assert {reason.value for reason in Reason} <= set(rows)


def test_exit_codes_of_the_documents_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs/reference/exit-codes.md").read_text(), re.MULTILINE)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    codes = {kind.exit_code for kind in kinds if hasattr(kind, "exit_code")}
    assert {int(row) for row in rows} == codes | {0, DIFFERENT, main.INTERRUPTED, STREAM_FAILED}


def test_every_command_that_exits_with_1_is_named_in_the_exit_codes() -> None:
    pages = (ROOT / "docs/reference/commands.md").read_text().split("\n## eos-replicate ")[1:]
    found = {page.partition("\n")[0] for page in pages if "\n| 1 |" in page}
    (row,) = re.findall(r"^\| 1 \| (.+) \|", (ROOT / "docs/reference/exit-codes.md").read_text(), re.MULTILINE)
    named = {name.partition(" --")[0] for name in re.findall(r"`([a-z].*?)`", row)} | {"demo", "demo-spark"}
    assert len(found) > 10
    assert found == named


def test_every_key_of_a_position_is_explained() -> None:
    text = (ROOT / "docs/reference/formats.md").read_text().partition("## Positions")[2].partition("\n## ")[0]
    keys = [key for cell in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for key in re.findall(r"`(\w+)`", cell)]
    written = json.loads(checkpoint.encode(EVIDENCE))
    assert sorted(keys) == sorted(written)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_pages_are_what_the_code_says(name: str) -> None:
    assert (ROOT / "docs/reference" / name).read_text() == PAGES[name](), "run: python -m cli.reference"


def test_the_picture_of_the_demo_is_of_its_present_output() -> None:
    """If not: `python docs/images/draw_demo.py`. It loads nothing from anywhere."""
    picture = (ROOT / "docs/images/demo.svg").read_text()
    shown = html.unescape(" ".join(re.findall(r">([^<]+)</text>", picture))).replace("\xa0", " ")
    tables = (
        show.verdict_table(DemoResult({}, 0, 0, (), 0.0)),
        show.progress_table(Progress(), Settings(0, 0.0, 0, 0, 0)),
    )
    for words in [str(column.header) for table in tables for column in table.columns] + [str(tables[0].title)]:
        assert words in shown, words
    assert "Nothing lost, doubled, reordered or altered: 5 worker kills and 1 broker kill in" in shown
    assert re.findall(r"https?://[^\" ]+", picture) == ["http://www.w3.org/2000/svg"]


def test_what_executors_lack_is_said_as_the_page_shows() -> None:
    with pytest.raises(ConfigError) as raised:
        executors.check(executors.ExecutorState("worker-2", 1, "not installed on Python 3.11", ()))
    shown = re.sub(r"\d+\.\d+(?:\.\d+)?(?:\.dev\d+\+\S+)?", "N", f"error: {raised.value}")
    assert shown in re.sub(r"\d+\.\d+(?:\.\d+)?", "N", (ROOT / "docs/spark/cluster.md").read_text())


def test_help_of_every_command_is_reachable() -> None:
    group = main.LazyGroup(name="eos-replicate")
    for name in main.LAZY:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert CliRunner().invoke(command, ["--help"]).exit_code == 0
