"""Which rights (ACL operations) are missing on a topic. Pure values; found by `kafka.clusters`, decided about by
`lane.start`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MissingRights:
    """Operations on one topic that the user lacks, and a sentence that names them, the topic and the cluster."""

    operations: frozenset[str]
    text: str
