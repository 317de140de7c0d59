"""configs/monitoring/alerts.yaml: promtool takes it, and each rule is raised when it should be and not before."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
RULES = ROOT / "configs" / "monitoring" / "alerts.yaml"
PLAYED = Path(__file__).parent / "alert_rules.yaml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian's package prometheus)")


def promtool(*arguments: str) -> str:
    """What it says. Raises AssertionError with that where it finds fault."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@needs_promtool
def test_promtool_takes_the_rules() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", "--lint-fatal", str(RULES))


@pytest.mark.tier("default")
@needs_promtool
def test_alerts_are_raised_when_they_should_be() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(PLAYED))


def test_each_rule_is_played() -> None:
    rules = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    played = [each for test in yaml.safe_load(PLAYED.read_text())["tests"] for each in test["alert_rule_test"]]
    assert {each["alertname"] for each in played if each.get("exp_alerts")} == rules
