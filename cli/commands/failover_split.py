"""Refuses to fail over a part of topics that transactions tie together, unless the operator has named it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from cli.commands.coupled import topics_said
from cli.options import say
from replicator.coupling.sets import SplitSet, split_sets
from replicator.model.errors import ConfigError, ReplicatorError

if TYPE_CHECKING:
    from replicator.config import Flow
    from replicator.flow.topics import ControlPlane


def check_split(flow: Flow, plane: ControlPlane, topics: Collection[str], named: Collection[str]) -> None:
    """Ask the source which topics are tied together. One that can't be reached keeps nobody from failing over: it is
    said on stderr that this isn't known.

    Args:
        topics: that are to be failed over.
        named: those of which the operator has said that they may be, without what they are tied to.

    Raises:
        ConfigError: others would be left that are tied to them.
    """
    from replicator.inspect import coupled_topics

    control = plane.state.control_if_any()
    already = frozenset(() if control is None else control.failed_over)
    if already >= set(topics):
        return
    try:
        found = coupled_topics.look(flow)
    except ReplicatorError as error:
        say(f"which topics are tied together isn't known: {error}", err=True)
        return
    refused = split_without_name(split_sets(found.sets, already | set(topics)), topics, named)
    if refused:
        raise ConfigError("; ".join(refused))
    if found.unseen:
        say("not all is known of which topics are tied together: eos-replicate coupled says what", err=True)


def split_without_name(split: Sequence[SplitSet], topics: Collection[str], named: Collection[str]) -> list[str]:
    """Say of each set that would be split what was not named. What the flow doesn't copy is left in any case. Pure."""
    said = []
    for it in split:
        left = [topic for topic in it.left if topic not in it.coupled.outside]
        chosen = [topic for topic in it.chosen if topic in topics]
        unnamed = [topic for topic in chosen if topic not in named]
        if left and unnamed:
            options = " ".join(f"--split {topic}" for topic in chosen)
            said.append(
                f"transactions tie {topics_said(chosen, ())} to {topics_said(left, ())}, which would go on: fail them "
                f"over together, or have them split by name ({options}); eos-replicate coupled shows what ties them"
            )
    return said
