"""`plan` names all rights at once that are missing on both clusters, and no others than `rights` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.copying import Copying
from integration_tests.harness.granting import grant, said
from integration_tests.harness.guarded import CLUSTER, login
from integration_tests.partitions.conftest import SecuredPair

NOT_ALLOWED = 3
NEEDED = re.compile(
    r"cluster '(?P<cluster>\w+)'.*?the user needs (?P<operations>[A-Za-z, ]+?) on "
    r"(?:the cluster|(?P<resource>topic|group|transactional ids) '?(?P<name>[\w.-]+))"
)
"""How a finding of `plan` names rights."""
RESOURCES = {"cluster": "cluster", "topic": "topic", "group": "group", "transactional ids": "transactional-id"}
pytestmark = pytest.mark.tier("long", kafka="long")


def needed(findings: list[dict[str, Any]]) -> dict[tuple[str, str, str], set[str]]:
    """Operations that findings name, by cluster, resource and name."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for finding in findings:
        told = NEEDED.search(finding["message"])
        assert told, finding
        on = told["cluster"], told["resource"] or "cluster", told["name"] or ""
        found.setdefault(on, set()).update(told["operations"].split(", "))
    return found


def covers(right: dict[str, Any], cluster: str, resource: str, name: str) -> bool:
    """Whether a right is one on this resource."""
    of = (CLUSTER[right["side"]], right["resource"])
    if of != (cluster, RESOURCES[resource]):
        return False
    return name.startswith(right["name"]) if right["prefixed"] else name == right["name"]


def test_a_plan_names_all_that_is_missing_on_both_clusters_at_once(pair: SecuredPair, tmp_path: Path) -> None:
    """Each right that a flow can't run without, and none that `rights` doesn't print."""
    source, target = pair
    copying = Copying(source, target, tmp_path, partitions=1, source_via=login(source), via=login(target))
    path = copying.file.path
    [everything] = json.loads(said(path, "rights", "--json"))["flows"]
    [required] = json.loads(said(path, "rights", "--json", "--required-only"))["flows"]
    code, planned = copying.asked("plan")
    assert code == NOT_ALLOWED
    found = needed([it for it in planned["findings"] if it["kind"] == "right"])
    for right in required["rights"]:
        named = [operations for on, operations in found.items() if covers(right, *on)]
        assert set().union(*named) >= set(right["operations"]), (right, found)
    for on, operations in found.items():
        allowed = {each for right in everything["rights"] if covers(right, *on) for each in right["operations"]}
        assert operations <= allowed, (on, found)
    errors = needed([it for it in planned["findings"] if (it["kind"], it["severity"]) == ("right", "error")])
    for right in required["rights"]:
        assert any(covers(right, *on) for on in errors), (right, errors)
    grant(source, path, "source")
    grant(target, path, "target")
    code, planned = copying.asked("plan")
    assert (code, planned["findings"]) == (0, []), planned
    assert [it for it in planned["unchecked"] if "transactional" in it] == [
        f"Write on transactional ids eos.{copying.name}.*"
    ]
