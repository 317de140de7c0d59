"""configs/monitoring: every metric and label that rules and dashboard ask for exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from replicator.observe.metrics import METRICS, SUFFIXES

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "configs" / "monitoring"
GUIDE = ROOT / "docs" / "operate" / "monitoring.md"
EXPORTED = {
    name + suffix: {*described.labels, "job", "instance"} | ({"le"} if suffix == "_bucket" else set())
    for name, described in METRICS.items()
    for suffix in SUFFIXES[described.kind]
}
OF_OTHERS = {"up", "process_resident_memory_bytes"}
"""Metrics of Prometheus itself and of its client."""
WORDS = {
    "time",
    "rate",
    "increase",
    "sum",
    "by",
    "max",
    "count",
    "unless",
    "on",
    "histogram_quantile",
    "label_values",
    "m",
}


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((CONFIGS / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def asked() -> Iterator[str]:
    """All expressions of both files."""
    yield from (rule["expr"] for rule in rules())
    dashboard = json.loads((CONFIGS / "dashboard.json").read_text(encoding="utf-8"))
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    yield from (each["query"]["query"] for each in dashboard["templating"]["list"] if isinstance(each["query"], dict))


@pytest.mark.parametrize("expression", sorted(set(asked())))
def test_every_name_exists(expression: str) -> None:
    plain = re.sub(r'"[^"]*"', '""', expression)
    plain = re.sub(r"\[[^\]]*\]", "", plain)
    names = set(re.findall(r"[a-zA-Z_][a-zA-Z0-9_]*", plain))
    metrics = names & EXPORTED.keys()
    assert metrics or names & OF_OTHERS, expression
    labels = set().union(*(EXPORTED[name] for name in metrics)) | {"job", "instance"}
    assert names - EXPORTED.keys() - OF_OTHERS - WORDS - labels == set(), expression


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_rules_are_whole(rule: dict[str, Any]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert set(rule["annotations"]) == {"summary", "description"}
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    metrics = EXPORTED.keys() & set(re.findall(r"\w+", rule["expr"]))
    assert named <= set().union(*(EXPORTED[name] for name in metrics), {"instance"})


def test_the_guide_has_the_rules_of_the_file() -> None:
    alerts = GUIDE.read_text(encoding="utf-8").split("### Alerts")[1].split("\n### ")[0]
    told = re.findall(r"^\| `(Eos\w+)` \| `([^`]+)` \| (\w+) \| ", alerts, re.MULTILINE)
    assert told == [(rule["alert"], rule["expr"], rule["for"]) for rule in rules()]


def test_panels_have_their_own_place() -> None:
    panels = json.loads((CONFIGS / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not own & taken, panel["title"]
        taken |= own
    assert len({panel["id"] for panel in panels}) == len(panels)
