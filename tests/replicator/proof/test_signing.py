"""Signed reports: all of a directory is as it was signed, or the check names what isn't, down to a single bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cli.main import invoke
from replicator.model.errors import ConfigError
from replicator.proof import signing
from replicator.proof.manifest import MANIFEST, SIGNATURE, Manifest, SignedFile, decode
from replicator.proof.signing import Signer

CHECK_S_MAX = 5.0
FILES = {"report.json": b'{"verdict": "agrees"}\n', "report.html": b"<p>agrees</p>", "findings.jsonl": b""}


def written(path: Path, encryption: KeySerializationEncryption = NoEncryption(), key: object = None) -> Path:  # noqa: B008
    made = key or Ed25519PrivateKey.generate()
    path.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))  # type: ignore[attr-defined]
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    path.with_suffix(".pub").write_bytes(public)
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return written(tmp_path / "key.pem")


@pytest.fixture
def report(tmp_path: Path, key: Path) -> Path:
    directory = tmp_path / "report"
    directory.mkdir()
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    Signer(key, "reconcile", "orders", "1.0")(directory)
    return directory


def test_it_says_what_was_signed_by_whom(report: Path, key: Path) -> None:
    found = signing.check(report, key.with_suffix(".pub"))
    assert found.wrong == ()
    assert found.manifest is not None
    assert (found.manifest.command, found.manifest.flow, sorted(found.manifest.files)) == (
        "reconcile",
        "orders",
        sorted(FILES),
    )


@pytest.mark.tier("default")
@pytest.mark.parametrize("name", [*FILES, MANIFEST, SIGNATURE])
def test_each_flipped_bit_of_each_file_is_found(report: Path, name: str) -> None:
    """Of the manifest, which is longer, one of each byte."""
    path = report / name
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in (place % 8,) if name == MANIFEST else range(8):
            altered = bytearray(content)
            altered[place] ^= 1 << bit
            path.write_bytes(altered)
            assert signing.check(report).wrong, f"bit {bit} of byte {place}"
    path.write_bytes(content)
    assert signing.check(report).wrong == ()


def remove(report: Path) -> None:
    (report / "report.html").unlink()


def add(report: Path) -> None:
    (report / "more.json").write_text("{}")


def add_below(report: Path) -> None:
    (report / "below").mkdir()
    (report / "below" / MANIFEST).write_text("{}")


def cut(report: Path) -> None:
    (report / "report.json").write_bytes(FILES["report.json"][:-1])


def forget(report: Path) -> None:
    """A manifest that doesn't name a file, and the file removed: the signature is the former one."""
    (report / "findings.jsonl").unlink()
    manifest = decode((report / MANIFEST).read_bytes())
    left = {name: it for name, it in manifest.files.items() if name != "findings.jsonl"}
    said = Manifest(
        command=manifest.command,
        flow=manifest.flow,
        made_ms=manifest.made_ms,
        tool_version=manifest.tool_version,
        public_key=manifest.public_key,
        files=left,
    )
    (report / MANIFEST).write_bytes(said.encode())


def link_to_a_directory(report: Path) -> None:
    """A file below it would be shown, and isn't one that was signed."""
    (report.parent / "outside").mkdir()
    (report.parent / "outside" / "report.html").write_text("<p>differs</p>")
    (report / "more").symlink_to(report.parent / "outside")


def replace_by_a_pipe(report: Path, name: str = "report.json") -> None:
    """Nobody writes into it: who opens it waits."""
    (report / name).unlink()
    os.mkfifo(report / name)


def grow(report: Path) -> None:
    """It takes no room on the disk."""
    with (report / MANIFEST).open("r+b") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (link_to_a_directory, "more is a link to a directory"),
        (replace_by_a_pipe, "report.json is no file"),
        (lambda report: replace_by_a_pipe(report, MANIFEST), "manifest.json is no file"),
        (lambda report: replace_by_a_pipe(report, SIGNATURE), "manifest.sig is no file"),
        (lambda report: (report / "more").symlink_to("nothing"), "more is a link that leads nowhere"),
        (lambda report: (report / "more").symlink_to("more"), "more is a link that leads nowhere"),
        (lambda report: (report / "more").symlink_to("/dev/zero"), "more is no file"),
        (lambda report: (report / MANIFEST).write_text("[" * 200_000), "manifest.json: it can't be read"),
        (grow, "manifest.json has more than"),
        (remove, "report.html is missing"),
        (add, "more.json was not there"),
        (add_below, "below/manifest.json was not there"),
        (cut, "report.json had 22 bytes, and has 21"),
        (forget, "manifest.sig doesn't fit manifest.json"),
        (lambda report: (report / SIGNATURE).unlink(), "manifest.sig can't be read"),
        (lambda report: (report / MANIFEST).unlink(), "manifest.json can't be read"),
        (lambda report: (report / SIGNATURE).write_text("0" * 126 + "\n"), "doesn't fit"),
    ],
)
def test_what_was_done_to_it_is_named(report: Path, tamper: Callable[[Path], object], said: str) -> None:
    tamper(report)
    assert said in "\n".join(signing.check(report).wrong)


def test_who_signs_it_again_has_another_key(report: Path, key: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other.pem")
    (report / "report.json").write_text('{"verdict": "differs"}\n')
    (report / MANIFEST).unlink()
    (report / SIGNATURE).unlink()
    Signer(other, "reconcile", "orders", "1.0")(report)
    assert signing.check(report).wrong == (), "nobody has said whose key it must be"
    (said,) = signing.check(report, key.with_suffix(".pub")).wrong
    assert "it was signed by the key" in said


@pytest.mark.tier("default")
@pytest.mark.parametrize("made_ms", [-1, 1e300, float("inf"), 253_402_300_800_000])
def test_a_manifest_of_no_time_is_named(report: Path, made_ms: float) -> None:
    said = json.loads((report / MANIFEST).read_text())
    (report / MANIFEST).write_text(json.dumps(said | {"made_ms": made_ms}))
    (wrong,) = signing.check(report).wrong
    assert "manifest.json: it" in wrong


@pytest.mark.tier("default")
def test_names_that_a_terminal_would_obey_are_escaped(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (report / "\x1b[2J\nall is well").write_text("")
    Path(os.fsdecode(bytes(report) + b"/\xff")).write_text("")
    assert invoke(["evidence", "check", str(report)]) == 1
    said = capsys.readouterr().out
    assert "\\u001b[2J\\nall is well was not there" in said
    assert "\\xff was not there" in said


@pytest.mark.tier("default")
def test_what_is_no_file_is_not_signed(report: Path, key: Path) -> None:
    (report / "more").symlink_to(".")
    with pytest.raises(ConfigError, match="more is a link to a directory"):
        Signer(key, "reconcile", "orders", "1.0")(report)


def test_a_manifest_of_a_newer_version_is_named(report: Path) -> None:
    path = report / MANIFEST
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    (said,) = signing.check(report).wrong
    assert "version 2" in said


def test_keys_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "text.pem"
    text.write_text("no key")
    curve = written(tmp_path / "curve.pem", key=generate_private_key(SECP256R1()))
    locked = written(tmp_path / "locked.pem", BestAvailableEncryption(b"secret"))
    for path, said in ((text, "no private key"), (curve, "another kind"), (locked, "encrypted"), (tmp_path, "read")):
        with pytest.raises(ConfigError, match=said):
            Signer(path, "reconcile", "orders", "1.0")
    with pytest.raises(ConfigError, match="no public key"):
        signing.check(tmp_path, text)


@pytest.mark.tier("default")
def test_the_command_says_it_by_its_exit_code(
    report: Path, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public = str(key.with_suffix(".pub"))
    assert invoke(["evidence", "check", str(report), "--key", public]) == 0
    assert "3 files are as reconcile of flow orders wrote them" in capsys.readouterr().out
    one = tmp_path / "verified"
    one.mkdir()
    (one / "verify.json").write_bytes(b"{}")
    Signer(key, "verify", "orders", "1.0")(one)
    assert invoke(["evidence", "check", str(one)]) == 0
    assert "1 file is as verify of flow orders wrote it" in capsys.readouterr().out
    (report / "report.html").write_bytes(b"<p>Agrees</p>")
    assert invoke(["evidence", "check", str(report)]) == 1
    assert "report.html was altered" in capsys.readouterr().out
    assert invoke(["evidence", "check", str(tmp_path / "none")]) == 2
    assert invoke(["evidence", "check", str(report), "--key", str(report / "report.html")]) == 2
    assert "no public key" in capsys.readouterr().err


@pytest.mark.tier("default")
def test_a_large_report_is_checked_in_time(tmp_path: Path, key: Path) -> None:
    directory = tmp_path / "report"
    directory.mkdir()
    (directory / "findings.parquet").write_bytes(bytes(1_000_000) * 64)
    Signer(key, "reconcile", "orders", "1.0")(directory)
    began_s = time.process_time()
    assert signing.check(directory).wrong == ()
    assert time.process_time() - began_s < CHECK_S_MAX


@pytest.mark.tier("default")
def test_it_needs_no_network_and_no_cluster(report: Path) -> None:
    code = (
        "import socket, sys; socket.socket = None; from cli.main import invoke; "
        f"sys.exit(invoke(['evidence', 'check', {str(report)!r}]))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_names_and_sizes_are_kept_as_they_are() -> None:
    files = {"ü.json": SignedFile(3, "00"), "a b": SignedFile(0, "ff")}
    made = Manifest(command="verify", flow="f", made_ms=1, tool_version="1", public_key="aa", files=files)
    assert decode(made.encode()) == made
