"""The metadata of a proof: what is written can be read, and anything else is told apart."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.workers.proofs import METADATA_BYTES_MAX, BadProof, ProofMetadata, decode

METADATA = st.builds(
    ProofMetadata,
    owner=st.text(max_size=50),
    version=st.text(max_size=20),
    generation=st.integers(0, 2**31),
    since_ms=st.integers(0, 2**53),
    settings_hash=st.text("0123456789abcdef", max_size=32),
)
ONE = ProofMetadata(owner="host:7:abc", version="0.9", generation=3, since_ms=1_700_000_000_000, settings_hash="ff")


@given(METADATA)
def test_it_reads_back(metadata: ProofMetadata) -> None:
    assert decode(metadata.encode()) == metadata


def test_it_is_written_as_it_was() -> None:
    """Workers of other versions read it."""
    assert ONE.encode() == (
        '{"v":1,"owner":"host:7:abc","version":"0.9","generation":3,"since_ms":1700000000000,"settings_hash":"ff"}'
    )


def test_what_a_newer_version_adds_is_left_out() -> None:
    assert decode(json.dumps({**json.loads(ONE.encode()), "v": 2, "zone": "a"})) == ONE


def test_one_that_no_broker_takes_is_refused() -> None:
    with pytest.raises(BadProof, match="more than 4096"):
        ProofMetadata(owner="x" * METADATA_BYTES_MAX, version="", generation=1, since_ms=0, settings_hash="").encode()


@given(st.text() | st.recursive(st.none() | st.integers(), lambda inner: st.lists(inner), max_leaves=3).map(json.dumps))
def test_anything_else_is_no_proof(text: str) -> None:
    with pytest.raises(BadProof):
        decode(text)


@pytest.mark.parametrize(
    "change",
    [
        {"owner": 7},
        {"generation": "3"},
        {"generation": True},
        {"since_ms": 1.5},
        {"settings_hash": None},
        {"v": 0},
        {"v": "1"},
    ],
    ids=str,
)
def test_fields_of_other_types_are_no_proof(change: dict[str, object]) -> None:
    with pytest.raises(BadProof):
        decode(json.dumps({**json.loads(ONE.encode()), **change}))


@pytest.mark.parametrize("name", ["v", "owner", "version", "generation", "since_ms", "settings_hash"])
def test_each_field_is_needed(name: str) -> None:
    body = json.loads(ONE.encode())
    del body[name]
    with pytest.raises(BadProof):
        decode(json.dumps(body))


def test_json_that_is_nested_too_deep_is_no_proof() -> None:
    with pytest.raises(BadProof):
        decode("[" * 100_000)
