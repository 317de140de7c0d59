"""What is wrong with a flow's `schema_registry` beyond the form of its keys, and where its secrets come from. Reads the
files that secrets stand in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from replicator.config import properties
from replicator.config.properties import Problem
from replicator.config.registry_settings import FILES, SECRETS, TOPIC, RegistryAccess, SchemaRegistrySettings

SIDES = ("source", "target")
PORTS = {"http": 80, "https": 443}
_ALLOW = "allow_plaintext_password"
TEXTS = frozenset(RegistryAccess.model_fields) - {_ALLOW}
"""Keys of a registry whose values are text, whatever they look like."""


def looked_up(
    written: RegistryAccess, env: Mapping[str, str], directory: Path
) -> tuple[RegistryAccess, list[Problem], list[str]]:
    """Return how a registry is reached, with its secrets in place; what is wrong with it; and the files that it names.
    `written`: as it stands in the flow file."""
    raw = {key: value for key in sorted(TEXTS) if (value := getattr(written, key))}
    resolved, problems = properties.resolve(raw, env, directory)
    found = dict(resolved)
    for key in FILES:
        if found.get(key):
            found[key] = str(directory / Path(found[key]).expanduser())
    access = RegistryAccess(**found, allow_plaintext_password=written.allow_plaintext_password)
    named = [str(directory / Path(text[len(properties.FILE) :])) for text in raw.values() if _is_file(text)]
    if not problems:
        problems += _problems(raw, access)
    return access, problems, [*named, *(found[key] for key in FILES if found.get(key))]


def _is_file(text: str) -> bool:
    return text.startswith(properties.FILE)


def pair_fault(settings: SchemaRegistrySettings) -> str:
    """Say which registry is missing, or that both are one; empty where neither is so. With mode topic none is needed.
    `settings`: with what their URLs were looked up to."""
    missing = [side for side in SIDES if not getattr(settings, side).url]
    if len(missing) == len(SIDES) and (settings.mode == TOPIC or settings == SchemaRegistrySettings()):
        return ""
    if missing:
        return f"needs the URL of the registry of {' and '.join(missing)}"
    same = _address(settings.source.url) == _address(settings.target.url)
    return "source and target are the same registry; each cluster has its own" if same else ""


def _address(url: str) -> tuple[str, str, int, str]:
    split = urlsplit(url)
    return split.scheme, split.hostname or "", split.port or PORTS[split.scheme], split.path.rstrip("/")


def _problems(raw: Mapping[str, str], access: RegistryAccess) -> Iterator[Problem]:
    if not access.url:
        if any(getattr(access, key) for key in raw):
            yield Problem("url", "missing; without it nothing else is needed")
        return
    try:
        split = urlsplit(access.url)
        fault = _url_fault(split)
    except ValueError as error:
        fault = str(error)
    if fault:
        yield Problem("url", f"{fault}; expected an address such as https://registry.example:8081")
        return
    if access.token and (access.username or access.password):
        yield Problem("token", "goes without username and password")
    if bool(access.username) != bool(access.password):
        yield Problem("password", "username and password go together")
    if access.key_file and not access.certificate_file:
        yield Problem("certificate_file", "missing; key_file is its key")
    for key in FILES:
        path = getattr(access, key)
        if path and not Path(path).is_file():
            yield Problem(key, f"there is no file {path}")
    if not access.allow_plaintext_password and not properties.is_loopback(f"{split.hostname}:0"):
        yield from _readable(raw, access, split)


def _url_fault(split: SplitResult) -> str:
    if split.scheme not in PORTS:
        return "begins with neither http:// nor https://"
    if split.username is not None or split.password is not None:
        return "has a user in it, which username and password are for"
    if split.query or split.fragment:
        return "has more than a path behind the host"
    if not split.hostname or any(each.isspace() for each in split.geturl()):
        return "names no host"
    return "" if (split.port or PORTS[split.scheme]) > 0 else "has port 0"


def _readable(raw: Mapping[str, str], access: RegistryAccess, split: SplitResult) -> Iterator[Problem]:
    """Yield secrets that others could read: in the file itself, or on the wire."""
    advice = "or set allow_plaintext_password: true for this registry"
    for key in SECRETS:
        if raw.get(key) and properties.is_written_in_the_file(raw[key]):
            yield Problem(key, f"a secret written in the file; use ${{NAME}} or file:PATH, {advice}")
    if split.scheme == "http" and (access.password or access.token):
        yield Problem("url", f"http sends the secret readably; use https, {advice}")
