"""Incidents: all facts, and advice that is never empty."""

from __future__ import annotations

import pickle

import structlog
from structlog.testing import capture_logs

from replicator.incidents import tell_incident
from replicator.model.errors import Incident
from replicator.model.incident_kinds import KINDS


def test_advice_is_never_empty() -> None:
    assert all(Incident(name, "why").advice == kind.advice for name, kind in KINDS.items())
    assert Incident("of_a_later_version", "why").advice
    assert Incident("target_not_empty", "why", advice="Ask").advice == "Ask"


def test_an_incident_comes_back_from_another_process_as_it_was() -> None:
    incident = Incident("target_not_empty", "why", topic="t", partition=3, offset=7)
    assert pickle.loads(pickle.dumps(incident)) == incident
    assert incident.at(4, 9).facts == {**incident.facts, "partition": 4, "offset": 9}


def test_an_incident_is_told_with_all_facts() -> None:
    incident = Incident("target_not_empty", "why", topic="t", partition=3, offset=7)
    with capture_logs() as logs:
        tell_incident(structlog.get_logger(), incident)
    assert logs == [{"event": "incident", "log_level": "error", **incident.facts}]
