"""The name in a client's certificate, as Kafka prints it: `X500Principal.getName()`, RFC 2253 as Java writes it.

Reads only as much DER as leads to the subject; the certificate has been checked by OpenSSL before.
"""

from __future__ import annotations

from collections.abc import Iterator

SEQUENCE, SET, OID, VERSION = 0x30, 0x31, 0x06, 0xA0
KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""Those of RFC 2253. All other attributes are written as numbers."""
ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "latin-1", 0x1C: "utf-32-be",
             0x1E: "utf-16-be"}  # fmt: skip
ESCAPED = frozenset(',=+<>#;"\\')


def principal_name(certificate: bytes) -> str:
    """Read the subject of a DER certificate. Raises ValueError when that can't be read."""
    try:
        to_sign = next(_items(next(_items(certificate))[1]))[1]
        fields = [(tag, body) for tag, body, _ in _items(to_sign)]
    except StopIteration as error:
        raise ValueError("the certificate is empty") from error
    # [version] serial number, signature algorithm, issuer, validity, subject
    subject = fields[4 + (fields[0][0] == VERSION)][1]
    names = ["+".join(_attribute(pair) for _, pair, _ in _items(name)) for _, name, _ in _items(subject)]
    return ",".join(reversed(names))


def _items(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (tag, content, both with their length) of each element. Raises ValueError."""
    at = 0
    while at < len(data):
        start, length, begin = at, data[at + 1] if at + 1 < len(data) else 0, at + 2
        if length & 0x80:
            count = length & 0x7F
            length, begin = int.from_bytes(data[begin : begin + count], "big"), begin + count
        at = begin + length
        if at > len(data):
            raise ValueError("a DER element is longer than what holds it")
        yield data[start], data[begin:at], data[start:at]


def _attribute(pair: bytes) -> str:
    (_, oid, _), (tag, content, whole) = list(_items(pair))[:2]
    name = _dotted(oid)
    keyword = KEYWORDS.get(name)
    if keyword is None or tag not in ENCODINGS:
        return f"{keyword or name}=#{whole.hex()}"
    return f"{keyword}={_escaped(content.decode(ENCODINGS[tag]))}"


def _escaped(text: str) -> str:
    middle = text.strip(" ")
    if not middle:
        return "\\ " * len(text)
    lead, trail = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    inner = "".join(f"\\{char}" if char in ESCAPED else "\\00" if char == "\0" else char for char in middle)
    return "\\ " * lead + inner + "\\ " * trail


def _dotted(oid: bytes) -> str:
    numbers, value = [], 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
