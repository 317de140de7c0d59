"""Named steps of a lane at which a test can kill or stop the worker: `EOS_FAILPOINTS="before_end_txn@3=kill"`.

`eos-replicate run` and commands that change something read the variable; without it every step is a no-op.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable

from replicator.model.errors import ConfigError

VARIABLE = "EOS_FAILPOINTS"
LANE_STEPS = (
    "fenced",
    "before_end_claims",
    "claimed",
    "before_send",
    "mid_batch",
    "before_flush",
    "before_offsets",
    "before_end_txn",
    "after_end_txn",
)
"""Of each lane, whether it runs live or for a job."""
STEPS = (
    *LANE_STEPS,
    "change_prepared",
    "before_decision",
    "before_end_decision",
    "after_decision",
    "adoption_planned",
    "position_set_begun",
    "position_set_opened",
    "position_set_fenced",
    "before_position_set",
    "position_set_recorded",
    "position_set_sent",
    "before_end_position_set",
    "after_position_set",
    "position_set_handed_over",
    "rebuild_begun",
    "rebuild_listed",
    "rebuild_prepared",
    "rebuild_opened",
    "failover_look",
    "failover_freeze",
    "failover_on_freeze",
    "failover_keep",
    "failover_verdict",
    "failover_write",
    "failover_on_verdict",
    "failover_on_undo",
    "failover_open",
    "failover_done",
)
ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}

Failpoint = Callable[[str], None]
"""Called by a lane with the name of each step, when it is there."""


def nothing(step: str) -> None:
    """Do nothing, as the failpoint of a run in which nothing is to fail."""


def parse(text: str) -> Failpoint:
    """Make a function that a lane calls at each step. Raises ConfigError for an unknown step or action."""
    if not text:
        return nothing
    plans: dict[tuple[str, int], signal.Signals] = {}
    for item in text.split(","):
        step, _, rest = item.strip().partition("@")
        number, _, action = rest.partition("=")
        if step not in STEPS or not number.isdigit() or action not in ACTIONS:
            raise ConfigError(f"{VARIABLE}: {item!r} is not STEP@N=ACTION with a step of {', '.join(STEPS)}")
        plans[(step, int(number))] = ACTIONS[action]
    reached: Counter[str] = Counter()

    def failpoint(step: str) -> None:
        reached[step] += 1
        action = plans.get((step, reached[step]))
        if action is not None:
            # to this very thread: a SIGSTOP to the process lets it run on until another thread has taken it
            signal.pthread_kill(threading.get_ident(), action)

    return failpoint
