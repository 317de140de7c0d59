"""A flow's settings as its generation holds them, and a flow that runs them. Pure.

Invariant: a process that follows another file keeps its own connections, and all else of that file: also the names that
it gives the clusters, which are part of target topics' names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from replicator.config import Cluster, Flow
from replicator.config.models import LANES_AUTO
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Kind
from replicator.workers.balance import lanes_auto
from replicator.workers.settings import (
    CONNECTIONS,
    NOT_STORED,
    REGISTRY,
    OpenSettings,
    OwnFile,
    Runs,
    canonical,
    settings_hash,
)


class UnknownSettings(ValueError):
    """A newer version of the program has opened the generation, and this one doesn't know all of its settings."""


def own_file(flow: Flow, source_cluster: str = "") -> OwnFile:
    """Return the flow as this process's file has it; `source_cluster`: the id of the cluster that it reads."""
    text = canonical(flow.model_dump(mode="json", exclude_defaults=True))
    return OwnFile(
        hash=settings_hash(text), revision=flow.revision or None, settings=text, source_cluster=source_cluster
    )


def lanes_wanted(flow: Flow, listing: Mapping[str, int], control: Control) -> int:
    """Return how many lanes the flow's own file wants. With `auto` as many as it has: they are fixed when the flow is
    first opened, by its listing (partitions by source topic)."""
    if flow.lanes != LANES_AUTO:
        return flow.lanes
    before = control.daemon
    return lanes_auto(sum(listing.values())) if before is None else before.lanes


def open_settings(control: Control, flow: Flow) -> OpenSettings | None:
    """Say what the open generation says to a worker, whose own flow is `flow`; None where none is open.

    A worker may replace a generation that is neither the daemon's nor a job's: the daemon on Spark had it, or a command
    that could not hand the flow over.
    """
    found = control.open
    if found is None:
        return None
    runs = Runs.JOB if found.kind.bounded else Runs.LIVE
    try:
        followed(flow, found)
    except UnknownSettings as error:
        return OpenSettings(runs=runs, hash=found.settings_hash, revision=found.revision, unknown=str(error))
    return OpenSettings(runs=runs, hash=found.settings_hash, revision=found.revision)


def followed(flow: Flow, found: Generation) -> Flow:
    """Return a flow with a generation's settings and this one's connections; with its lanes alone, if it has no
    settings.

    Raises UnknownSettings.
    """
    lanes = found.lanes if found.kind is Kind.LIVE else flow.lanes
    if not found.settings:
        return flow.model_copy(update={"lanes": lanes})
    settings: dict[str, Any] = json.loads(found.settings)
    if found.kind is Kind.LIVE:
        settings["lanes"] = lanes
    sides: dict[str, Cluster] = {
        side: cluster.model_copy(update={"name": settings.get(side, cluster.name)})
        for side, cluster in (("source", flow.source), ("target", flow.target))
    }
    registry = {**settings.get(REGISTRY, {}), **{side: getattr(flow.schema_registry, side) for side in CONNECTIONS}}
    try:
        made = Flow.model_validate(
            {
                **settings,
                **sides,
                REGISTRY: registry,
                "name": flow.name,
                **{key: getattr(flow, key) for key in NOT_STORED},
            }
        )
    except ValidationError as error:
        unknown = ", ".join(".".join(map(str, each["loc"])) for each in error.errors(include_url=False))
        raise UnknownSettings(
            f"generation {found.number} has settings that this version doesn't know: {unknown}"
        ) from error
    return flow if made == flow else made
