"""Writes docs/protocol.md from the API modules.

`python -m embedded_broker.api.protocol_document > docs/protocol.md`, by hand, when a test says that it has changed.
"""

from __future__ import annotations

import sys

from embedded_broker.api.registry import Api, load_all

INTRODUCTION = """\
# Protocol of the embedded broker

Generated from the modules in `embedded_broker/api` by `python -m embedded_broker.api.protocol_document`; a test checks
that it is up to date. A request with another API key, or a version outside of these, closes the connection; an
ApiVersions request with a version that is too new is answered in version 0 with UNSUPPORTED_VERSION.

| key | API | versions |
|---|---|---|
"""


def document() -> str:
    """The whole text."""
    apis = sorted(load_all().values(), key=lambda api: api.key)
    rows = [f"| {api.key} | {_title(api)} | {api.versions[0]}–{api.versions[-1]} |\n" for api in apis]  # noqa: RUF001
    return INTRODUCTION + "".join(rows) + "".join(f"\n## {_title(api)}\n\n{_notes(api)}\n" for api in apis)


def _title(api: Api) -> str:
    return "".join(part.capitalize() for part in api.name.split("_"))


def _notes(api: Api) -> str:
    return api.notes.replace("Version notes:", "\nVersion notes:")


if __name__ == "__main__":
    sys.stdout.write(document())
