"""`eos-replicate evidence`: is a signed report as it was when it was signed?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import json_option, print_json, say
from cli.suggesting import SuggestingGroup
from replicator.model.counting import counted

if TYPE_CHECKING:
    from replicator.proof.signing import CheckedEvidence

ALTERED = 1


@click.group(
    cls=SuggestingGroup,
    epilog="""\b
Examples:
  eos-replicate evidence check report
  eos-replicate evidence check report --key public.pem
""",
)
def evidence() -> None:
    """Check reports that reconcile and verify have signed."""


@evidence.command(
    epilog="""\b
Examples:
  eos-replicate evidence check report
  eos-replicate evidence check report --key public.pem --json

\b
Exit codes:
  0  all files are as they were when they were signed
  1  a file was altered, is missing or was added, or the signature isn't
     that of the manifest, or not by this key
  2  there is no such directory, or the key can't be read
""",
    short_help="Check a report's signature and files, offline.",
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--key",
    "trusted",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The public key (PEM) that must have signed it. Without it anybody may have: compare the key that is shown.",
)
@json_option
def check(directory: Path, trusted: Path | None, as_json: bool) -> int:
    """Check that a report is as it was when reconcile or verify signed it: each file, and no other.

    The check needs neither a cluster nor the network.
    """
    from replicator.proof import signing

    found = signing.check(directory, trusted)
    if as_json:
        print_json(_as_json(found, trusted))
    else:
        _show(directory, found, trusted)
    return ALTERED if found.wrong else 0


def _as_json(found: CheckedEvidence, trusted: Path | None) -> dict[str, Any]:
    manifest = found.manifest
    said = {} if manifest is None else {
        "command": manifest.command,
        "flow": manifest.flow,
        "made_ms": manifest.made_ms,
        "tool_version": manifest.tool_version,
        "public_key": manifest.public_key,
        "files": len(manifest.files),
    }  # fmt: skip
    return {"intact": not found.wrong, "key_was_given": trusted is not None, **said, "wrong": list(found.wrong)}


def _show(directory: Path, found: CheckedEvidence, trusted: Path | None) -> None:
    from replicator.model.printable import printable

    for line in found.wrong:
        say(printable(line))
    if found.wrong or found.manifest is None:
        say(f"{directory} is not what was signed")
        return
    manifest = found.manifest
    made = datetime.fromtimestamp(manifest.made_ms / 1000, UTC).isoformat(timespec="seconds")
    files = counted(len(manifest.files), "file")
    are, them = ("is", "it") if len(manifest.files) == 1 else ("are", "them")
    say(f"{directory}: {files} {are} as {printable(manifest.command)} of flow {printable(manifest.flow)} wrote {them}")
    say(f"signed at {made} by the key {manifest.public_key}")
    if trusted is None:
        say("whose key that is can't be known here: compare it, or give the public key with --key")
