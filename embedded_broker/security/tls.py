"""TLS between a socket and a connection. Sans-I/O: bytes go in, plain text and bytes for the socket come out.

A TLS transport of asyncio would shake hands before the broker knows of the connection; here handshakes are counted,
bounded and timed like everything else.
"""

from __future__ import annotations

import ssl
from struct import Struct

from embedded_broker.config.listeners import ClientAuth, TlsFiles

RECORD, HANDSHAKE = Struct(">cHH"), b"\x16"
"""Kind, version and length of a TLS record."""
RECORD_BYTES_MAX = RECORD.size + (1 << 14)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Make a context for TLS 1.2 and 1.3. Raises OSError (with the file's name) or ValueError."""
    if files.client_auth is not ClientAuth.NONE and files.client_authorities is None:
        raise ValueError("client certificates can't be checked without the authorities that may have signed them")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    for path in (files.certificate, files.key, files.client_authorities):
        if path is not None:
            path.open("rb").close()  # OpenSSL's own error doesn't name the file
    try:
        context.load_cert_chain(files.certificate, files.key, files.key_password or "")
        if files.client_authorities is not None:
            context.load_verify_locations(files.client_authorities)
    except ssl.SSLError as error:
        raise ValueError(f"the certificate, its key or the authorities cannot be used: {error}") from error
    context.verify_mode = {
        ClientAuth.NONE: ssl.CERT_NONE,
        ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
        ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
    }[files.client_auth]
    return context


class TlsStream:
    """One connection's TLS.

    OpenSSL takes 46 KiB for it, so that it is only asked when the client's first record is whole.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context, self._first = context, b""
        self._incoming: ssl.MemoryBIO
        self._outgoing: ssl.MemoryBIO
        self._tls: ssl.SSLObject | None = None
        self.is_established = False
        """Whether the handshake is done, and with it the client's certificate checked."""

    def _begin(self, data: bytes | memoryview) -> ssl.SSLObject | None:
        """Begin with OpenSSL, from the client's first record on."""
        self._first += data
        if _is_cut(self._first):
            return None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._incoming.write(self._first)
        self._first = b""
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        return self._tls

    def receive(self, data: bytes | memoryview) -> bytes:
        """Decrypt bytes from the socket to plain text. Afterwards `take` what the socket should get.

        Raises ssl.SSLError when the client doesn't speak TLS, or has no good certificate.
        """
        if self._tls is not None:
            self._incoming.write(data)
        elif self._begin(data) is None:
            return b""
        assert self._tls is not None
        plain = bytearray()
        try:
            if not self.is_established:
                self._tls.do_handshake()
                self.is_established = True
            while part := self._tls.read(max(self._incoming.pending, 16_384)):
                plain += part
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            pass  # the client has said that it closes; the socket will tell
        return bytes(plain)

    def send(self, plain: bytes | memoryview) -> bytes:
        """Encrypt plain text to bytes for the socket. Only once `is_established`."""
        assert self._tls is not None
        self._tls.write(plain)
        return self.take()

    def take(self) -> bytes:
        """Take what the socket should get: handshake messages, alerts."""
        return b"" if self._tls is None else self._outgoing.read()

    def client_certificate(self) -> bytes | None:
        """Return what the client has shown, checked, as DER."""
        return None if self._tls is None else self._tls.getpeercert(binary_form=True)


def _is_cut(data: bytes) -> bool:
    """Return whether more must come of a handshake's first record (RFC 8446, 5.1); what is none is OpenSSL's to
    refuse.
    """
    if len(data) < RECORD.size:
        return data[:1] in (b"", HANDSHAKE)
    kind, _, size_bytes = RECORD.unpack_from(data)
    return bool(kind == HANDSHAKE and len(data) < RECORD.size + size_bytes <= RECORD_BYTES_MAX)
