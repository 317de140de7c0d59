"""`eos-replicate simulate`: what it says of seeds that are right, and of one that isn't."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cli.commands.simulate import WRONG, simulate
from embedded_broker.simulation.run import simulate as run
from tests.embedded_broker.simulation.mutations import forget_to_say_what_is_aborted

pytestmark = pytest.mark.tier("extended")  # whole runs of the broker


def test_a_seed_is_run_and_summed_up() -> None:
    result = CliRunner().invoke(simulate, ["--seed", "2", "--seeds", "1", "--json"], standalone_mode=False)
    summary = json.loads(result.output)
    assert result.return_value == 0
    assert (summary["seed"], summary["violations"]) == (2, [])
    assert summary["workloads"] == ["retention", "admin"]
    assert summary["virtual_s"] > 1
    assert len(summary["digest"]) == 32


def test_a_seed_that_fails_is_named_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_to_say_what_is_aborted(monkeypatch)
    seed = next(each for each in range(60) if "aborted read" in {found.kind for found in run(each).violations})
    result = CliRunner().invoke(simulate, ["--seed", str(seed)], standalone_mode=False)
    assert result.return_value == WRONG
    assert "aborted read: " in result.output
    assert "broker 0 starts" in result.output or " gets " in result.output
    assert f"wrong with: {seed}" in result.output
