"""The one writer of incidents: one log line with all facts. Called by flows, lanes and jobs."""

from __future__ import annotations

from contextlib import suppress

import structlog

from replicator.model.errors import Incident


def tell_incident(log: structlog.stdlib.BoundLogger, incident: Incident) -> None:
    """Write one `incident` event with all facts of `incident`, with the flow that `log` is bound to in its advice."""
    flow = _flow(log)
    told = incident.of_flow(flow) if flow else incident
    log.error("incident", **told.facts)


def _flow(log: structlog.stdlib.BoundLogger) -> str:
    """Say which flow each line of `log` has; empty: none."""
    with suppress(ValueError):  # it is bound to nothing
        return str(structlog.get_context(log).get("flow", ""))
    return ""
