"""Reads a pattern into a program: the part of RE2's syntax that topic names have a use for.

Literals, `.`, classes with ranges, negation and `[:alpha:]`, `\\d \\w \\s` and their opposites, groups, `|`, `*`, `+`,
`?`, `{n,m}`, `^`, `$`, `\\A`, `\\z`, and `(?i)` in front. Everything else is refused.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

PROGRAM_MAX = 500
REPEAT_MAX = 200
DEPTH_MAX = 50
LENGTH_MAX = 1_000


class BadPattern(ValueError):
    """Not a pattern, or one that is too large; the text says where."""


class Kind(Enum):
    """What an instruction does."""

    CHAR = auto()
    """Takes a character of `mask`, a bit for each ASCII character."""
    SPLIT = auto()
    """Goes on at all `targets`."""
    BEGIN = auto()
    END = auto()
    MATCH = auto()


@dataclass(frozen=True, slots=True)
class Instruction:
    """Goes on at the next one, but for SPLIT; its targets are places in the whole program."""

    kind: Kind
    mask: int = 0
    targets: tuple[int, ...] = ()


# Within a part of a program, targets count from the part's own start.
Code = list[Instruction]


def _mask(chars: str) -> int:
    return sum({1 << ord(char) for char in chars})


ANY = (1 << 128) - 1
CLASSES = {"d": string.digits, "w": string.ascii_letters + string.digits + "_", "s": "\t\n\f\r "}
NAMED = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "digit": string.digits,
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "punct": string.punctuation,
    "word": CLASSES["w"],
    "xdigit": string.hexdigits,
}
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> Code:
    """The program of a pattern; its last instruction is MATCH. Raises BadPattern."""
    if len(text) > LENGTH_MAX:
        raise BadPattern(f"a pattern of {len(text)} characters, at most {LENGTH_MAX} are allowed")
    if not text.isascii():
        raise BadPattern("topic names have ASCII characters only")
    reader = _Reader(text)
    code = reader.alternatives(0)
    if reader.at < len(text):
        raise reader.bad("unexpected )")
    return [*code, Instruction(Kind.MATCH)]


class _Reader:
    """Recursive descent over the text; each method leaves `at` behind what it has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._fold = text.startswith("(?i)")
        self.at = 4 if self._fold else 0

    def bad(self, problem: str) -> BadPattern:
        return BadPattern(f"{problem} at character {self.at}")

    def _peek(self) -> str:
        return self._text[self.at : self.at + 1]

    def _take(self, expected: str = "") -> str:
        char = self._peek()
        if not char or (expected and char != expected):
            raise self.bad(f"{expected or 'another character'} is missing")
        self.at += 1
        return char

    def alternatives(self, depth: int) -> Code:
        if depth > DEPTH_MAX:
            raise self.bad("too many groups in each other")
        branches = [self._sequence(depth)]
        while self._peek() == "|":
            self._take()
            branches.append(self._sequence(depth))
        code = branches.pop()
        while branches:
            code = self._bounded(_either(branches.pop(), code))
        return code

    def _sequence(self, depth: int) -> Code:
        code: Code = []
        while (char := self._peek()) and char not in "|)":
            code = self._bounded(_then(code, self._repeated(depth)))
        return code

    def _repeated(self, depth: int) -> Code:
        code = self._atom(depth)
        while (char := self._peek()) and char in "*+?{":
            if char == "{":
                low, high = self._counts()
            else:
                self._take()
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            if self._peek() == "?":
                self._take()
            code = self._repeat(code, low, high)
        return code

    def _counts(self) -> tuple[int, int | None]:
        self._take("{")
        low = self._number()
        high: int | None = low
        if self._peek() == ",":
            self._take()
            high = None if self._peek() == "}" else self._number()
        self._take("}")
        if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
            raise self.bad(f"repetitions go up to {REPEAT_MAX}, and upwards")
        return low, high

    def _number(self) -> int:
        start = self.at
        while self._peek().isdecimal():
            self._take()
        if start == self.at or self.at - start > 6:
            raise self.bad("a number is missing, or too long")
        return int(self._text[start : self.at])

    def _repeat(self, code: Code, low: int, high: int | None) -> Code:
        found: Code = []
        for _ in range(low):
            found = self._bounded(_then(found, code))
        if high is None:
            return self._bounded(_then(found, _star(code)))
        rest: Code = []
        for _ in range(high - low):
            rest = self._bounded(_either(_then(code, rest), []))
        return self._bounded(_then(found, rest))

    def _bounded(self, code: Code) -> Code:
        if len(code) >= PROGRAM_MAX:
            raise self.bad("the pattern is too large")
        return code

    def _atom(self, depth: int) -> Code:
        char = self._take()
        if char == "(":
            self._skip_group_name()
            code = self.alternatives(depth + 1)
            self._take(")")
            return code
        if char == "[":
            return [Instruction(Kind.CHAR, self._class())]
        if char in "^$":
            return [Instruction(Kind.BEGIN if char == "^" else Kind.END)]
        if char == ".":
            return [Instruction(Kind.CHAR, ANY & ~_mask("\n"))]
        if char == "\\":
            if self._peek() in ("A", "z"):
                return [Instruction(Kind.BEGIN if self._take() == "A" else Kind.END)]
            return [Instruction(Kind.CHAR, self._folded(self._escape()))]
        if char in "*+?{":
            raise self.bad(f"nothing to repeat before {char}")
        return [Instruction(Kind.CHAR, self._folded(_mask(char)))]

    def _skip_group_name(self) -> None:
        """Behind an opening parenthesis: `?:`, `?<name>` or `?P<name>`."""
        if self._peek() != "?":
            return
        self._take()
        if self._peek() == ":":
            self._take()
            return
        if self._peek() == "P":
            self._take()
        self._take("<")
        name = ""
        while self._peek() != ">":
            name += self._take()
        self._take(">")
        if not name.isidentifier():
            raise self.bad("look-around and flags within a pattern are not spoken here")

    def _escape(self) -> int:
        """Behind a backslash: the characters meant."""
        char = self._take()
        if char.lower() in CLASSES:
            mask = _mask(CLASSES[char.lower()])
            return mask if char.islower() else ANY & ~mask
        if char in CONTROLS:
            return _mask(CONTROLS[char])
        if char.isalnum():
            raise self.bad(f"\\{char} is not spoken here")
        return _mask(char)

    def _class(self) -> int:
        """Behind an opening bracket."""
        negated = self._peek() == "^"
        if negated:
            self._take()
        mask, first = 0, True
        while first or self._peek() != "]":
            first = False
            mask |= self._class_item()
        self._take("]")
        mask = self._folded(mask)
        return ANY & ~mask if negated else mask

    def _class_item(self) -> int:
        if self._text.startswith("[:", self.at):
            end = self._text.find(":]", self.at)
            name = self._text[self.at + 2 : end]
            if end < 0 or name not in NAMED:
                raise self.bad("an unknown class of characters")
            self.at = end + 2
            return _mask(NAMED[name])
        low = self._class_char()
        if self._peek() != "-" or self._text[self.at + 1 : self.at + 2] in ("]", ""):
            return low
        self._take("-")
        high = self._class_char()
        if low.bit_count() != 1 or high.bit_count() != 1 or high < low:
            raise self.bad("a range that is none")
        return (high << 1) - low

    def _class_char(self) -> int:
        char = self._take()
        return self._escape() if char == "\\" else _mask(char)

    def _folded(self, mask: int) -> int:
        if not self._fold:
            return mask
        change: list[Callable[[str], str]] = [str.lower, str.upper]
        chars = [chr(number) for number in range(128) if mask >> number & 1]
        return mask | _mask("".join(fold(char) for char in chars for fold in change))


def _moved(code: Code, by: int) -> Code:
    return [
        replace(each, targets=tuple(target + by for target in each.targets)) if each.targets else each for each in code
    ]


def _then(first: Code, second: Code) -> Code:
    return [*first, *_moved(second, len(first))]


def _either(first: Code, second: Code) -> Code:
    end = len(first) + 2 + len(second)
    return [
        Instruction(Kind.SPLIT, targets=(1, len(first) + 2)),
        *_moved(first, 1),
        Instruction(Kind.SPLIT, targets=(end,)),
        *_moved(second, len(first) + 2),
    ]


def _star(code: Code) -> Code:
    return [
        Instruction(Kind.SPLIT, targets=(1, len(code) + 2)),
        *_moved(code, 1),
        Instruction(Kind.SPLIT, targets=(0,)),
    ]
