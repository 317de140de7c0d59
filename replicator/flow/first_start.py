"""Whether a flow may be opened for the first time. Pure; asked by `flow.setup` before anything is created.

Invariant 2: the control topic is created only for a flow that has neither a claim nor a position. One that has gone, or
that somebody created anew, would let two generations live at once, and every record would be copied twice.

The order in which the facts are read keeps two first starts from alarming each other. Whoever opens a flow creates its
own topics first and commits claims and positions last; so whoever asks for claims and positions first, and for the
control topic last, sees the control topic whenever it has seen one of the others.
"""

from __future__ import annotations

from replicator.model import names
from replicator.model.errors import Incident
from replicator.state.control_topic import Control


def is_first_start(flow: str, *, has_claims: bool, has_positions: bool, control: Control | None) -> bool:
    """Return whether the flow named `flow` has never run. `control` was read after the others; None: there is no such
    topic.

    Raises Incident `control_topic_lost`.
    """
    if control is not None and control.begun:
        return False
    if not has_claims and not has_positions:
        return True
    has = " and ".join(["claims"] * has_claims + ["positions"] * has_positions)
    topic = names.control_topic(flow)
    what = "doesn't exist" if control is None else "holds neither an open nor a preparing generation"
    raise Incident("control_topic_lost", f"{topic} {what}, but flow {flow} has {has}", topic=topic, partition=0)
