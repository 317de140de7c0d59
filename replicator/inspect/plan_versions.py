"""What the clusters speak, for `inspect.planning`: which release of Kafka each is, and whether a target has
transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from replicator.config import Cluster, Flow
from replicator.inspect.flow_plan import FlowPlan, PlanFinding
from replicator.model.errors import ReplicatorError
from replicator.wire.cluster_versions import only_unknown_versions, spoken, without_transactions
from replicator.wire.connection import Spoken

TRIED = ("3.9", "4.0", "4.3")
"""Releases with which flows were run, see docs/operate/kafka-versions.md."""
_FEATURE = "metadata.version"
_RELEASES: Mapping[int, str] = {
    1: "3.0",
    2: "3.1",
    3: "3.2",
    4: "3.3",
    8: "3.4",
    9: "3.5",
    12: "3.6",
    15: "3.7",
    20: "3.8",
    21: "3.9",
    22: "4.0",
    26: "4.1",
    28: "4.2",
    30: "4.3",
}
"""By the lowest `metadata.version` of each (MetadataVersion in Kafka). A broker says the highest one that it knows,
whatever the cluster has finalized."""
_NEWEST_LEVEL = 30
_FETCH, _FETCH_OF_OLDEST = 1, 17
"""The highest version of Fetch in the oldest release that was tried."""


def plan_versions(flow: Flow, result: FlowPlan, *, reached: bool = True) -> bool:
    """Ask both clusters, and add to a plan what they say; whether they speak what is known here. Raises nothing that a
    cluster says. `reached`: both have answered other questions; else one that doesn't answer is told of already."""
    known = True
    for cluster in (flow.source, flow.target):
        try:
            found = spoken(cluster, f"eos-replicate.{flow.name}.plan")
        except ReplicatorError as error:
            if reached:
                unknown = "which release of Kafka it is" + ", and whether it has transactions" * (
                    cluster is flow.target
                )
                result.note(PlanFinding("warning", "cluster", f"{error}; {unknown}, is not known"))
            continue
        result.releases[cluster.name] = release_of(found)
        for message in release_warnings(cluster, found):
            result.note(PlanFinding("warning", "cluster", message))
        missing = without_transactions(cluster, found) if cluster is flow.target else None
        later = only_unknown_versions(cluster, found)
        known = known and later is None
        for fault in (missing, later):
            if fault is not None:
                result.note(PlanFinding("error", "cluster", str(fault), fault.exit_code))
    return known


def release_of(found: Spoken) -> str:
    """Return the release that a broker is of, "newer than" the newest one that was tried; empty where it tells none."""
    level = found.features.get(_FEATURE)
    if level is None:
        return ""
    if level > _NEWEST_LEVEL:
        return f"newer than {TRIED[-1]}"
    return next(
        (name for lowest, name in sorted(_RELEASES.items(), reverse=True) if level >= lowest), f"older than {TRIED[0]}"
    )


def release_warnings(cluster: Cluster, found: Spoken) -> Iterator[str]:
    """Yield what should be known of a cluster whose release wasn't tried. It is refused nothing for that."""
    tried = f"flows were tried with Kafka {', '.join(TRIED)}"
    release, fetch = release_of(found), found.apis.get(_FETCH, (0, -1))[1]
    if not release:
        if fetch < _FETCH_OF_OLDEST:
            yield (
                f"cluster {cluster.name!r} doesn't tell its release of Kafka, and its APIs are older than those of "
                f"{TRIED[0]}: not tried; {tried}"
            )
    elif not release[0].isdigit() or _number(release) < _number(TRIED[0]):
        said = release if release[0].isdigit() else f"of a release {release}"
        yield f"cluster {cluster.name!r} is Kafka {said}: not tried; {tried}"


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
