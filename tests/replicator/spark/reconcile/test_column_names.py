"""Columns of findings are named in one place: by the fields of the named tuples that their rows are."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from replicator.proof.by_content.names import Names, names
from replicator.proof.by_content.record_verdicts import FINDING, RECORD, Finding, ReadRecord
from replicator.spark import reconcile
from replicator.spark.reconcile import arrow, resolve
from replicator.spark.reconcile.resolve import KNOWN, PartitionFacts

pytestmark = pytest.mark.tier("extended")  # parses all of Spark's modules
PACKAGE = Path(reconcile.__file__).parents[1]
MODULES = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
NAMED: dict[str, tuple[Names, type[tuple[object, ...]]]] = {
    "FINDING": (FINDING, Finding),
    "RECORD": (RECORD, ReadRecord),
    "KNOWN": (KNOWN, PartitionFacts),
}
FIELDS = {*Finding._fields, *PartitionFacts._fields}
BY_MAP = "rows of the comparison by the map before there are findings: their own schema"
OTHER_COLUMNS = {
    "range_ledger.py": ({"records"}, "of a backfill"),
    "reconcile/by_map/chunk_sums.py": ({"records", "timestamp_ms"}, BY_MAP),
    "reconcile/by_map/compare.py": ({"records"}, BY_MAP),
    "reconcile/by_map/compared_pairs.py": ({"place", "digest", "tombstone", "timestamp_ms"}, BY_MAP),
    "reconcile/by_map/known_rows.py": ({"digest", "place", "records"}, BY_MAP),
    "reconcile/by_map/opened_rows.py": ({"place", "digest", "tombstone", "timestamp_ms", "key"}, BY_MAP),
    "reconcile/compaction_proof.py": ({"proven"}, "what the log says of a place, and no fact about a partition"),
    "reconcile/passes.py": ({"records"}, "pieces of the first read, as `cutting.Piece` has them"),
    "reconcile/transforms.py": ({"key"}, "of Spark's Kafka source"),
}
"""Columns of other frames that happen to have the name of a field, by module, and whose they are."""
COLUMN = re.compile(r"\b(\w+) (?:string|int|long|boolean|binary|array)\b")


def columns_in(text: str) -> set[str]:
    """Names that a literal can be of columns: all of it, or those of a schema."""
    return {text, *COLUMN.findall(text)}


def docstrings(tree: ast.AST) -> set[int]:
    """Literals that are statements of their own."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def written_in(tree: ast.AST) -> set[str]:
    """Fields that a module's literals name, but for its docstrings."""
    said = docstrings(tree)
    literals = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in said]
    return FIELDS & {name for node in literals if isinstance(node.value, str) for name in columns_in(node.value)}


def test_no_column_of_a_finding_is_written_out() -> None:
    found = {module: written for module, tree in MODULES.items() if (written := written_in(tree))}
    assert found == {module: written for module, (written, _) in OTHER_COLUMNS.items()}


def test_every_name_that_is_used_is_one_of_a_field() -> None:
    attributes = [
        (module, node.value.id, node.attr)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in NAMED
    ]
    assert len(attributes) > 100
    assert [each for each in attributes if each[2] not in NAMED[each[1]][1].__annotations__] == []


def test_names_are_those_of_the_fields_and_no_others() -> None:
    for found, of in NAMED.values():
        assert vars(found) == {name: name for name in of.__annotations__}
    assert pickle.loads(pickle.dumps(FINDING)) == FINDING == names(Finding)
    with pytest.raises(AttributeError):
        _ = FINDING.verdicts


def test_a_schema_has_all_fields_or_those_that_are_asked_for() -> None:
    assert arrow.types(resolve.PLACES).names == ["topic", "partition", *PartitionFacts._fields]
    assert arrow.columns(Finding, FINDING.key, FINDING.guessed) == "key binary, guessed boolean"
