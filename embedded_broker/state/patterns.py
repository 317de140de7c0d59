"""Patterns of topic names, as RE2 takes them: no back references, no look-around, and time in proportion to the name.

A member's pattern comes from outside. Python's own `re` may take for ever on some; here a pattern becomes a bounded
program of which all threads run at once (Thompson), and steps already seen are remembered.
"""

from __future__ import annotations

from embedded_broker.state.pattern_syntax import PROGRAM_MAX, BadPattern, Instruction, Kind, parse

__all__ = ["BadPattern", "Pattern"]

STEPS_REMEMBERED_MAX = 4_096

Threads = frozenset[int]


class Pattern:
    """A compiled pattern; it must match a whole name."""

    def __init__(self, text: str) -> None:
        """Raises BadPattern if `text` is no pattern, or one that is too large."""
        self._program: list[Instruction] = parse(text)
        assert len(self._program) <= PROGRAM_MAX
        self._steps: dict[tuple[Threads, int, bool, bool], Threads] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole of an ASCII name matches."""
        threads = self._follow({0}, first=True, last=not name)
        for at, char in enumerate(name):
            if not threads:
                return False
            threads = self._step(threads, ord(char), last=at == len(name) - 1)
        return any(self._program[at].kind is Kind.MATCH for at in threads)

    def _step(self, threads: Threads, char: int, *, last: bool) -> Threads:
        key = (threads, char, False, last)
        known = self._steps.get(key)
        if known is not None:
            return known
        program = self._program
        going_on = {
            at + 1 for at in threads if program[at].kind is Kind.CHAR and char < 128 and program[at].mask >> char & 1
        }
        after = self._follow(going_on, first=False, last=last)
        if len(self._steps) >= STEPS_REMEMBERED_MAX:
            self._steps.clear()
        self._steps[key] = after
        return after

    def _follow(self, starts: set[int], *, first: bool, last: bool) -> Threads:
        """All places that can be reached without another character."""
        waiting, seen = list(starts), set(starts)
        while waiting:
            instruction = self._program[waiting[-1]]
            at = waiting.pop()
            if instruction.kind is Kind.SPLIT:
                targets = instruction.targets
            elif (instruction.kind is Kind.BEGIN and first) or (instruction.kind is Kind.END and last):
                targets = (at + 1,)
            else:
                targets = ()
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return frozenset(seen)
