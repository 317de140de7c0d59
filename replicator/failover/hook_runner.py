"""Which hooks a failover runs, and what becomes of one that fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from replicator.config.failover_settings import HOOKS, FailoverSettings
from replicator.failover.hooks import cannot_start, run_hook
from replicator.failover.steps import FailoverStep, Steps
from replicator.model.counting import counted
from replicator.model.errors import HookFailed
from replicator.model.printable import printable

LINES_SHOWN = 40


class HookCheck(NamedTuple):
    """A hook that would run. `problem`: why it can't be started; empty where it can."""

    hook: str
    command: tuple[str, ...]
    problem: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {"hook": self.hook, "command": list(self.command), "problem": self.problem}


class HookRunner:
    """The hooks of one call of the command."""

    def __init__(self, settings: FailoverSettings, steps: Steps, *, left_out: bool = False) -> None:
        """`left_out`: none of them runs, because the operator says so."""
        self._settings, self._steps, self._left_out = settings, steps, left_out

    def checked(self) -> list[HookCheck]:
        """Say of each hook that would run whether it can be started."""
        commands = [] if self._left_out else [(hook, self._settings.command(hook)) for hook in HOOKS]
        return [HookCheck(hook, command, cannot_start(command)) for hook, command in commands if command]

    def check(self, *hooks: str) -> None:
        """Raise HookFailed where one of these can't be started: before anything is changed."""
        wrong = [f"{it.hook}: {it.problem}" for it in self.checked() if it.hook in hooks and it.problem]
        if wrong:
            raise HookFailed(f"hook {'; hook '.join(wrong)}. Nothing was changed; --no-hooks goes on without them")

    def run(self, hook: str, step: FailoverStep, facts: Mapping[str, Any]) -> None:
        """Run a hook, if there is one, and say what it has written. Raises HookFailed."""
        command = self._settings.command(hook)
        if not command or self._left_out:
            self._steps.skip(step, "--no-hooks" if command else "")
            return
        with self._steps.step(step):
            result = run_hook(command, {"hook": hook, **facts}, self._settings.hook_timeout_ms / 1000)
            lines = result.output.splitlines()
            if left_out := max(0, len(lines) - LINES_SHOWN):
                self._steps.note(step, f"{counted(left_out, 'line')} of output not shown")
            elif result.left_out:
                self._steps.note(step, f"{counted(result.left_out, 'byte')} of output not shown")
            for line in lines[-LINES_SHOWN:]:
                self._steps.note(step, printable(line))
            if result.failure:
                raise HookFailed(f"hook {hook}: {result.failure}")
