"""Durations and sizes of a flow file: a plain number, or a number with its unit (`1s`, `32MiB`). Pure.

The key keeps its name: `interval_ms: 1s` is `interval_ms: 1000`. So there is one key for a setting, and no file can
say it twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from replicator.config.source import but

_WRITTEN = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?([A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class Unit:
    """To be named in the annotation of a field: what its plain numbers count, and which units it takes instead.

    `factors` has the units in falling order of their use in messages, each with how many of `plain` it is.
    """

    plain: str
    example: str
    factors: Mapping[str, int]

    def read(self, value: Any) -> Any:
        """Return the number that `value` stands for. Raises ValueError for what is neither a whole number nor has a
        unit.
        """
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        expected = f"expected {self.plain} or {self.example}"
        match = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{expected}{but(value)}")
        number, unit = match.groups()
        if unit not in self.factors:
            near = next((name for name in self.factors if name.lower() in (unit.lower(), f"{unit.lower()}ib")), None)
            meant = f"; did you mean {number}{near}?" if near else ""
            raise ValueError(f"{expected}{but(value)}{meant}")
        total = Decimal(number) * self.factors[unit]
        if total != int(total):
            raise ValueError(f"{expected}: {value} is not a whole number of {self.plain}")
        return int(total)

    def text(self, number: int) -> str:
        """Write `number` in the largest unit of which it is a whole number: `15m`, `32MiB`."""
        fitting = [(factor, name) for name, factor in self.factors.items() if number and number % factor == 0]
        factor, name = max(fitting, key=lambda each: each[0], default=(1, next(iter(self.factors))))
        return f"{number // factor}{name}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Have pydantic read the value first, then check the number."""
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Tell pydantic's JSON schema that it is a number within its bounds, or text with a unit."""
        pattern = rf"^[0-9]+(\.[0-9]+)? ?({'|'.join(self.factors)})$"
        return {**handler(schema), "type": ["integer", "string"], "pattern": pattern}


MILLISECONDS = Unit(
    "milliseconds",
    "a duration such as 500ms, 1s, 15m, 1h or 1d",
    {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000},
)
BYTES = Unit(
    "bytes",
    "a size such as 512KiB, 32MiB or 32MB",
    {
        "B": 1,
        "KiB": 1024,
        "MiB": 1024**2,
        "GiB": 1024**3,
        "kB": 1000,
        "MB": 1000**2,
        "GB": 1000**3,
    },
)


def unit_of(key: str) -> Unit | None:
    """Return the unit of a setting, which its name says; None for one without."""
    if key == "heartbeat" or (key.endswith("_ms") and key != "timestamp_ms"):
        return MILLISECONDS
    return BYTES if key.endswith(("bytes_max", "bytes_per_s")) else None
