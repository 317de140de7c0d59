"""What `status` says of the schemas that a flow keeps at the target's registry, and when `--check` fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands.status_schemas import CONFLICTS_SHOWN, FlowSchemas, ask_schemas
from integration_tests.harness.schema_registry import Registry
from replicator.schemas.plan import SchemaConflict
from replicator.schemas.schema import Version
from replicator.schemas.shown import SchemasShown
from tests.replicator.schema_sync.test_sync import file, flow_of, go_over, here, there

pytestmark = pytest.mark.tier("default")
__all__ = ["here", "there"]


def asked(here: Registry, there: Registry, directory: Path) -> FlowSchemas:
    flow = flow_of(file(directory, here.url, there.url))
    assert ask_schemas([flow], set()) == {}, "of a flow whose clusters don't answer nothing is asked"
    return ask_schemas([flow], {"f"})["f"]


def test_it_counts_subjects_and_names_conflicts(here: Registry, there: Registry, tmp_path: Path) -> None:
    here.register("well", '"int"')
    here.register("clash", '"long"')
    go_over(here, there, exclude=["clash"])
    here.register("user", '"string"', references=[{"name": "n", "subject": "clash", "version": 1}])
    here.register("later", '"float"')
    there.state.highest_id = 1
    there.register("mine", '"bytes"')
    written = there.written()
    found = asked(here, there, tmp_path)
    reason = "the target has another schema with this id (mine version 1)"
    assert list(found.lines()) == [
        "schemas of 4 subjects, 1 in sync, 2 waiting, 1 refused",
        f"schema clash version 1 (id 2): {reason}",
    ]
    assert list(found.problems("f")) == [f"flow f: schema clash version 1 (id 2): {reason}"]
    assert found.as_json() == {
        "schemas": 4, "subjects": 4, "in_sync": 1, "waiting": 2, "refused": 1, "conflict_count": 1, "unknown": "",
        "conflicts": [{"subject": "clash", "version": 1, "id": 2, "reason": reason}],
        "reason": f"1 schema can't go over: clash version 1 (id 2): {reason}; 1 schema behind them",
    }  # fmt: skip
    assert (there.written(), here.written()) == (written, []), "it only looks"


def test_what_waits_is_well_and_what_cannot_be_asked_is_not(here: Registry, there: Registry, tmp_path: Path) -> None:
    here.register("s", '"int"')
    found = asked(here, there, tmp_path)
    assert (list(found.lines()), list(found.problems("f"))) == (["schemas of 1 subject, 0 in sync, 1 waiting"], [])
    there.fault = lambda method, path: (403, b"", "")
    found = asked(here, there, tmp_path)
    (line,) = found.lines()
    assert line.startswith("schemas: the schema registry of the target")
    (problem,) = found.problems("f")
    assert "it isn't known where its schemas stand: the schema registry of the target" in problem
    assert "403" in found.as_json()["unknown"]


def test_a_long_list_is_cut_and_says_so() -> None:
    conflicts = tuple(SchemaConflict(Version("s", number), number, "why") for number in range(CONFLICTS_SHOWN + 3))
    shown = FlowSchemas(SchemasShown(20, 0, "", 1, refused=1, conflicts=conflicts))
    lines = list(shown.lines())
    assert len(lines) == CONFLICTS_SHOWN + 2
    assert lines[-1].startswith("and 3 more")
    assert len(list(shown.problems("f"))) == CONFLICTS_SHOWN + 3
