"""Where the records of a topic come from, over all flows that have copied them. Pure values, kept in claims."""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """One hop: `flow` has read the records from `topic` of the cluster with the id `cluster`."""

    cluster: str
    topic: str
    flow: str


Origins = frozenset[Origin]
"""All hops behind a topic; empty for one that no flow writes."""
NONE: Origins = frozenset()
