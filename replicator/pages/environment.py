"""Makes the pages of one package from its templates, and from those that all of them share: `page.css`.

A page is one file: no scripts, nothing loaded from elsewhere. All that comes from a cluster is escaped twice: control
characters by the filter `printable` or `name`, HTML by jinja2.
"""

from __future__ import annotations

from datetime import UTC, datetime

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from replicator.model.counting import counted
from replicator.model.printable import printable

TIME_MS_MAX = 253_402_300_800_000
"""The year 10000, which Python's calendar doesn't know."""


def pages_of(package: str) -> Environment:
    """Make the environment of the templates in `templates` of a package."""
    loaders = [PackageLoader(name, "templates") for name in (package, "replicator.pages")]
    environment = Environment(
        loader=ChoiceLoader(loaders), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "number": number_text,
        "time": time_text,
        "printable": printable,
        "name": name_text,
        "counted": counted,
    }
    return environment


def number_text(value: int | None) -> str:
    """Write a number with separators, or a dash."""
    return "–" if value is None else f"{value:,}"  # noqa: RUF001


def time_text(milliseconds: int | None) -> str:
    """Write a time in UTC; the number, where the calendar has no such time."""
    if milliseconds is None or not 0 <= milliseconds < TIME_MS_MAX:
        return "–" if milliseconds is None else str(milliseconds)  # noqa: RUF001
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def name_text(name: object) -> Markup:
    """Write the name of a topic or partition, which may be broken behind a dot where a line is too short for it."""
    return Markup(".<wbr>").join(printable(str(name)).split("."))
