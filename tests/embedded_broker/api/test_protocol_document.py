"""docs/protocol.md says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_broker.api.protocol_document import document
from embedded_broker.api.registry import APIS, api, load_all
from embedded_broker.wire import schema
from embedded_broker.wire.responses import Later

ROOT = Path(__file__).parents[3]


def test_the_document_is_up_to_date() -> None:
    assert (ROOT / "docs" / "protocol.md").read_text() == document()


@pytest.mark.parametrize("key", sorted(load_all()))
def test_every_version_of_every_api_has_a_codec_and_notes(key: int) -> None:
    entry = APIS[key]
    for version in entry.versions:
        codec = schema.load(entry.name, version)
        assert codec.build({}) is not None, "all fields have defaults"
        assert schema.request_header_version(entry.name, version) in (1, 2)
    notes = document().partition(f"## {''.join(part.capitalize() for part in entry.name.split('_'))}\n")[2]
    assert notes.lstrip().startswith("Behaviour:")
    assert "Version notes:" in notes.partition("\n## ")[0]


def test_two_handlers_for_one_key_are_a_mistake() -> None:
    async def handle(*_: object) -> Later | None:
        return None

    with pytest.raises(ValueError, match="two handlers"):
        api(0, "produce", range(3))(handle)
