"""The one writer of incidents: one log line with all facts. Called by flows, lanes and jobs."""

from __future__ import annotations

import structlog

from replicator.model.errors import Incident


def tell_incident(log: structlog.stdlib.BoundLogger, incident: Incident) -> None:
    """Write one `incident` event with all facts of `incident`."""
    log.error("incident", **incident.facts)
