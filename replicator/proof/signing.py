"""Signs the directory of a report, and checks one that was signed. Ed25519 (RFC 8032), by the package cryptography.

Nobody is asked: neither a cluster nor the network. Used by the commands `reconcile`, `verify` and `evidence`.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from replicator.model.errors import ConfigError
from replicator.proof.manifest import MANIFEST, OWN, SIGNATURE, BadManifest, Manifest, SignedFile, compare, decode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

OWN_BYTES_MAX = 64 * 1024 * 1024
"""Of a manifest: several hundred thousand files."""
Seal = Callable[[Path], None]
"""Called with a report's directory once all of its files are there, before it gets its name."""


def check_library() -> None:
    """Raise ConfigError where the package that signs is not installed."""
    if importlib.util.find_spec("cryptography") is None:
        raise ConfigError("the package cryptography is missing: pip install 'eos-replicate[evidence]'")


def unsealed(directory: Path) -> None:
    """Leave a report without a manifest."""


class Signer:
    """The private key of a PEM file (PKCS#8), read before anything else is done."""

    def __init__(self, path: Path, command: str, flow: str, tool_version: str) -> None:
        """`command` makes the report, of `flow`. Raises ConfigError where the file is no such key."""
        check_library()
        self._key, self._command, self._flow, self._version = _private(path), command, flow, tool_version

    def __call__(self, directory: Path) -> None:
        """Write the manifest of all files of `directory`, and its signature. See `Seal`. Raises ConfigError where
        something in it is no file."""
        files, others = _files(directory)
        if others:
            raise ConfigError("; ".join(f"{directory / name} {what}" for name, what in sorted(others.items())))
        manifest = Manifest(
            command=self._command,
            flow=self._flow,
            made_ms=time.time_ns() // 1_000_000,
            tool_version=self._version,
            public_key=self._key.public_key().public_bytes_raw().hex(),
            files=files,
        ).encode()
        (directory / MANIFEST).write_bytes(manifest)
        (directory / SIGNATURE).write_bytes(_signature_text(self._key.sign(manifest)))


@dataclass(frozen=True, slots=True)
class CheckedEvidence:
    """What a check has found: `wrong` in sentences, empty where all is as it was signed. `manifest` None: there is none
    that can be read."""

    manifest: Manifest | None
    wrong: tuple[str, ...]


def check(directory: Path, trusted: Path | None = None) -> CheckedEvidence:
    """Check the signature of a directory's manifest, and each file against it.

    Args:
        trusted: the PEM file of the public key that must have signed it; None: whichever key the manifest names.

    Raises ConfigError where `directory` is none, or `trusted` no such key.
    """
    check_library()
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory")
    key = None if trusted is None else _public(trusted)
    try:
        content = _own(directory / MANIFEST)
        manifest = decode(content)
        signed_by = bytes.fromhex(manifest.public_key)
    except OSError as error:
        return CheckedEvidence(None, (f"{MANIFEST} can't be read: {error.strerror}",))
    except _NoFileError as error:
        return CheckedEvidence(None, (f"{MANIFEST} {error}",))
    except BadManifest as error:
        return CheckedEvidence(None, (f"{MANIFEST}: {error}",))
    except ValueError:
        return CheckedEvidence(None, (f"{MANIFEST} names no key",))
    wrong = []
    if key is not None and key.public_bytes_raw() != signed_by:
        wrong.append(f"it was signed by the key {manifest.public_key}, not by that of {trusted}")
    wrong += _signature_faults(directory, content, signed_by)
    found, others = _files(directory)
    wrong += [f"{name} {what}" for name, what in sorted(others.items())]
    wrong += compare({name: it for name, it in manifest.files.items() if name not in others}, found)
    return CheckedEvidence(manifest, tuple(wrong))


def _signature_faults(directory: Path, content: bytes, public_key: bytes) -> list[str]:
    from cryptography.exceptions import InvalidSignature

    try:
        text = _own(directory / SIGNATURE)
    except _NoFileError as error:
        return [f"{SIGNATURE} {error}"]
    except OSError as error:
        return [f"{SIGNATURE} can't be read: {error.strerror}"]
    try:
        signature = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        signature = b""
    if text != _signature_text(signature):  # digits that mean the same in another form were not written by this program
        return [f"{SIGNATURE} is not a signature as this program writes it"]
    try:
        _key_of(public_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return [f"{SIGNATURE} doesn't fit {MANIFEST}: one of them was altered"]
    return []


def _signature_text(signature: bytes) -> bytes:
    return f"{signature.hex()}\n".encode()


def _files(directory: Path) -> tuple[dict[str, SignedFile], dict[str, str]]:
    """Read all files below `directory` but the manifest's own, by their path in it. A link to a file is what it leads
    to. Returns what is no file beside them, as a pipe or a link to a directory, with what it is.

    Raises ConfigError where one can't be read.
    """
    found, others = dict[str, SignedFile](), dict[str, str]()

    def refuse(error: OSError) -> NoReturn:
        raise ConfigError(f"{error.filename} can't be read: {error.strerror}") from error

    for parent, directories, files in os.walk(directory, onerror=refuse):
        links = [name for name in directories if Path(parent, name).is_symlink()]
        for path in (Path(parent, name) for name in (*links, *files)):
            name = path.relative_to(directory).as_posix()
            if name in OWN:
                continue
            try:
                with _opened(path) as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                    found[name] = SignedFile(file.tell(), digest)
            except _NoFileError as error:
                others[name] = str(error)
            except OSError as error:
                refuse(error)
    return found, others


class _NoFileError(ValueError):
    """Says what it is instead."""


def _opened(path: Path) -> BufferedReader:
    """Open a regular file, and wait for nobody who would write into a pipe. Raises _NoFileError, OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink() and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise _NoFileError("is a link that leads nowhere") from error
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):  # a socket
            raise _NoFileError("is no file") from error
        raise
    file = os.fdopen(os.dup(descriptor), "rb") if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    os.close(descriptor)
    if file is None:
        raise _NoFileError("is a link to a directory" if path.is_symlink() and path.is_dir() else "is no file")
    return file


def _own(path: Path) -> bytes:
    """Read the manifest or its signature. Raises _NoFileError, OSError."""
    with _opened(path) as file:
        content = file.read(OWN_BYTES_MAX + 1)
    if len(content) > OWN_BYTES_MAX:
        raise _NoFileError(f"has more than {OWN_BYTES_MAX:,} bytes")
    return content


def _key_of(public_key: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey as Key

    return Key.from_public_bytes(public_key)


def _private(path: Path) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as Key
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except TypeError as error:
        raise ConfigError(f"{path} is encrypted; give a key without a passphrase") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path} is no private key in PEM (PKCS#8)") from error
    if not isinstance(found, Key):
        raise ConfigError(f"{path} is a key of another kind; make one with openssl genpkey -algorithm ed25519")
    return found


def _public(path: Path) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey as Key
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        found = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path} is no public key in PEM") from error
    if not isinstance(found, Key):
        raise ConfigError(f"{path} is a key of another kind, not ed25519")
    return found
