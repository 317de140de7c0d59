"""`python -m cli.reference` writes commands.md, configuration.md, licences.md, log-events.md and metrics.md.

By hand, when a test says that one of them has changed.
"""

from __future__ import annotations

from pathlib import Path

from cli.reference import commands, configuration, licences, log_events, metrics

DIRECTORY = Path(__file__).parents[2] / "docs" / "reference"
PAGES = {
    "commands.md": commands.page,
    "configuration.md": configuration.page,
    "licences.md": licences.page,
    "log-events.md": log_events.page,
    "metrics.md": metrics.page,
}
"""File name → what writes its text."""


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (DIRECTORY / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
