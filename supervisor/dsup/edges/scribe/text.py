r"""What a console is shown of a rank's bytes: text that can do a terminal no harm.

Clean blocks, which is nearly all there ever is, pass through as they are: the checks
run at the speed of memory. The rest is spelled out: a byte that is not UTF-8 as
``\xff``, a control character as ``\x1b``, so that nothing a rank prints moves the
cursor, sets a title, or answers to a terminal's question. So is what is not seen and
changes how the rest reads, as ``\u202e``: Unicode's format characters (bidirectional
controls, zero-width spaces, tags) and its line separators. Those that words and emoji
are made with pass: the joiners U+200C and U+200D, and Arabic's visible number signs.
Files get the bytes.

A line that begins as dsup's own do gets a mark, unless something stands before all of
the ranks' lines: whoever reads a verdict shall know whose it is.
"""

from __future__ import annotations

import re
import time

_PLAIN = bytes([0x09, 0x0A, *range(0x20, 0x7F)])
_PLAIN_OR_HIGH = _PLAIN + bytes(range(0x80, 0x100))
_BLANKS = bytes.maketrans(b"\t\n", b"  ")
_NO_TEXT = bytes(set(range(0x20)) - set(b"\t\n\r\x1b"))
_HARMFUL = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
_NO_LEAD = bytes(set(range(0x100)) - set(b"\xc2\xd8\xe1\xe2\xef\xf0\xf3"))
"""All bytes but those that a harmful character begins with in UTF-8."""
_UNCLEAN = re.compile(_HARMFUL)
_COLOURED = re.compile(rf"(\x1b\[[0-9;:]*m)|{_HARMFUL}")
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
_OFF = (b"\x1b[m", b"\x1b[0m")
_CUT_SHORT = re.compile(
    rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)
_BARS = re.compile(rb"^[^\n]*\r", re.MULTILINE)
_BAR_END = re.compile(rb"(?<!\r)\r+$", re.MULTILINE)
_FORGED = re.compile(
    rb"^(?=(?:\x1b\[[0-9;:]*m)*(?:dsup: |(?:%s|==) dsup ))" % "━━".encode(),
    re.MULTILINE,
)
"""The first characters of lines and panels of dsup's own, in any colour."""
_RANKS = b"(rank) "
_BINARY_BYTES = 4096
_BINARY_PART = 11
"""One byte in so many that no text has, in so large a block, and it is no text.

Of random or compressed bytes it is one in nine."""


def clean(block: bytes, *, colour: bool) -> bytes:
    """Return what may be shown of a block of lines.

    Args:
        block: bytes as they were written; no carriage returns.
        colour: colours (SGR sequences) pass; without, they are left out.
    """
    return block if _is_clean(block) else _spell_out(block, colour=colour)


def is_binary(block: bytes) -> bool:
    """Return whether a block is data, which nobody wants spelled out byte by byte."""
    if len(block) < _BINARY_BYTES or _is_clean(block):
        return False
    foreign = len(block) - len(block.translate(None, _NO_TEXT))
    return foreign * _BINARY_PART > len(block)


def last_words(block: bytes) -> bytes:
    """Return the clean lines that a block ends with."""
    lines = block.splitlines(keepends=True)
    first = len(lines)
    while first and _is_clean(lines[first - 1]):
        first -= 1
    return b"".join(lines[first:])


def final_states(block: bytes) -> bytes:
    """Return finished lines as a terminal would have left them.

    A line that was overwritten after a carriage return shows its last state only.
    """
    return _BARS.sub(b"", _BAR_END.sub(b"", block))


def own_up(block: bytes, *, begins: bool) -> bytes:
    """Return clean lines with a mark before those that begin as dsup's own do.

    Args:
        block: whole lines, the last one perhaps not.
        begins: the block begins with the beginning of a line.
    """
    if b"dsup" not in block:
        return block
    first = 0 if begins else block.find(b"\n") + 1 or len(block)
    return block[:first] + _FORGED.sub(_RANKS, block[first:])


def last_state(line: bytes) -> bytes:
    """Shorten an unfinished line that has carriage returns to its last state.

    What is left begins with a carriage return if something was overwritten, and ends
    with one if the line did: the next state then begins anew.
    """
    body = line.rstrip(b"\r")
    ended = b"\r" if len(body) < len(line) else b""
    start = body.rfind(b"\r")
    return body[max(0, start) :] + ended


def whole_characters(piece: bytes) -> int:
    """Return how many bytes of a piece end with a whole UTF-8 character."""
    cut = _CUT_SHORT.search(piece, max(0, len(piece) - 3))
    return cut.start() if cut else len(piece)


def _is_clean(block: bytes) -> bool:
    if block.isascii():
        return not block.translate(None, _PLAIN)
    if block.translate(None, _PLAIN_OR_HIGH):
        return False
    try:
        text = block.translate(_BLANKS).decode()
    except UnicodeDecodeError:
        return False
    if not block.translate(None, _NO_LEAD):
        return True
    # The search is for the few that are printable in all but Unicode's word.
    return text.isprintable() or not _UNCLEAN.search(text)


def _spell_out(block: bytes, *, colour: bool) -> bytes:
    def spell(found: re.Match[str]) -> str:
        if found[1]:
            return found[1] if colour else ""
        return ascii(found[0])[1:-1] if found[0] > "\xff" else f"\\x{ord(found[0]):02x}"

    text = block.decode(errors="backslashreplace")
    shown = _COLOURED.sub(spell, text).encode()
    return _end_colour(shown) if colour else shown


def _end_colour(shown: bytes) -> bytes:
    """Have a colour end with its block: the next line may be another rank's."""
    last = shown.rfind(b"\x1b[")
    found = _COLOUR.match(shown, last) if last >= 0 else None
    if not found or found[0] in _OFF:
        return shown
    body = shown.removesuffix(b"\n")
    return body + _OFF[1] + shown[len(body) :]


def lead(block: bytes, mark: bytes, *, begins: bool) -> bytes:
    """Return the lines of a block behind a mark.

    Args:
        block: whole lines, the last one perhaps not.
        mark: what goes before each.
        begins: the block begins with the beginning of a line.
    """
    if not mark:
        return block
    lines = memoryview(block.replace(b"\n", b"\n" + mark))
    if block.endswith(b"\n"):
        lines = lines[: -len(mark)]
    return b"".join((mark if begins else b"", lines))


def stamp(wall_ns: int) -> bytes:
    """Return a time as ISO 8601, UTC, to the millisecond, and a space.

    Args:
        wall_ns: CLOCK_REALTIME, nanoseconds.
    """
    seconds, rest_ns = divmod(wall_ns, 1_000_000_000)
    day = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{day}.{rest_ns // 1_000_000:03d}Z ".encode()
