"""Text from elsewhere, made safe to be shown. Pure."""

from __future__ import annotations


def printable(text: str, *, backslash: bool = False) -> str:
    """Return the text without characters that a terminal or a browser would obey: each is shown by its escape sequence.

    Args:
        backslash: escape that, too, so that the text can be told from one with escape sequences in it.
    """
    if text.isprintable() and not (backslash and "\\" in text):
        return text
    return "".join(
        character if character.isprintable() and not (backslash and character == "\\") else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that isn't UTF-8, see surrogateescape
        return f"\\x{code - 0xDC00:02x}"
    named = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return named.get(character) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")
