"""Whether the source of a flow is a mirror itself, for `inspect.planning`: some of its topics are copies. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from replicator.config import Flow
from replicator.model.counting import named
from replicator.model.origins import Origins

NAMED_MAX = 5
_CHECKPOINTS = re.compile(r"(?P<alias>.+)\.checkpoints\.internal")
_OFFSET_SYNCS = re.compile(r"mm2-offset-syncs\..+\.internal")
"""MirrorMaker 2 has these at its source, or at its target (`offset-syncs.topic.location`)."""


def mirror_warnings(
    flow: Flow, topics: Collection[str], origins: Mapping[str, Origins], listed: Collection[str]
) -> Iterator[str]:
    """Yield who copies to the source, and what of that this flow copies on.

    Args:
        topics: those of the source that the flow copies.
        origins: where they come from, as other flows have claimed.
        listed: all topics of the source that the user may see.
    """
    source = f"cluster {flow.source.name!r} is a mirror itself"
    by_flow: defaultdict[str, list[str]] = defaultdict(list)
    for topic in sorted(origins.keys() & set(topics)):
        for name in {hop.flow for hop in origins[topic]} - {flow.name}:
            by_flow[name].append(topic)
    for name, copies in sorted(by_flow.items()):
        yield (
            f"{source}: flow {name!r} has written {named(copies, most=NAMED_MAX)}; what isn't yet copied to there, or "
            "was left out, isn't here either"
        )
    found = [match for name in sorted(listed) if (match := _CHECKPOINTS.fullmatch(name))]
    for match in found:
        alias = match["alias"]
        copies = sorted(it for it in topics if it.startswith(f"{alias}."))
        what = named(copies, most=NAMED_MAX) if copies else "topics, maybe of this flow, under their own names"
        yield (
            f"{source}: MirrorMaker 2 copies from {alias!r} ({match[0]}), {what}; what it has doubled or lost stays so"
        )
    syncs = [name for name in sorted(listed) if _OFFSET_SYNCS.fullmatch(name)]
    if syncs and not found:
        yield (
            f"MirrorMaker 2 reads from cluster {flow.source.name!r}, or copies to it ({named(syncs, most=NAMED_MAX)}): "
            "if it does, what it has doubled or lost stays so"
        )
