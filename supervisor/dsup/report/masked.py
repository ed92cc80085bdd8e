"""Texts and JSON without secrets, for those who pass a run on to a colleague. Pure.

Masked is what stands in the place of a secret: the value of a variable, option or field
with a secret's name, the name and password in a URL, a bearer token, a private key.
What is none by its place cannot be known for one. Every pattern is bounded and anchored
at a word's beginning, so the time is linear whatever the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from dsup.report.run_file import MASK, ends_secret, is_secret

OWN_MIN_CHARS: Final = 8
"""A shorter value of a variable may be a part of any word."""

_START: Final = rb"(?<![A-Za-z0-9_.-])"
_ASSIGNED: Final = re.compile(
    _START + rb"(?P<name>-{0,2}[A-Za-z_][A-Za-z0-9_.-]{0,127})"
    rb"""(?P<between>["']?[ ]{0,2}[=:][ ]{0,2}(?:[bru](?=["']))?)"""
)
_OPTION: Final = re.compile(
    _START + rb"(?P<name>--[A-Za-z_][A-Za-z0-9_-]{0,127})(?P<between> {1,2})"
)
_VALUE: Final = re.compile(rb""""[^"\r\n]{1,4096}"|'[^'\r\n]{1,4096}'|[^\s]+""")
_URL: Final = re.compile(
    rb"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,20}://)[^\s/@\"'<>]{1,512}@"
)
_BEARER: Final = re.compile(
    rb"(?i)\b(?P<head>bearer|basic)(?P<gap> )[A-Za-z0-9._~+/=-]{8,4096}"
)
_KNOWN: Final = re.compile(
    rb"\b(?:hf_[A-Za-z0-9]{16}|sk-[A-Za-z0-9-]{16}|gh[opsu]_[A-Za-z0-9]{16}"
    rb"|github_pat_[A-Za-z0-9]{8}|glpat-[A-Za-z0-9_-]{12}|xox[abprs]-[A-Za-z0-9-]{8}"
    rb"|AKIA[A-Z0-9]{12}|ASIA[A-Z0-9]{12})[A-Za-z0-9_-]{0,512}"
)
"""Tokens whose makers gave them a beginning of their own, so that tools find them."""

_KEY_BLOCK: Final = re.compile(
    rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,40}"
    rb"PRIVATE KEY-----)?"
)


class Masked(NamedTuple):
    """Bytes without secrets.

    Attributes:
        hidden: how many were masked.
    """

    raw: bytes
    hidden: int


def own_secrets(environment: Iterable[tuple[str, str]]) -> tuple[bytes, ...]:
    """Return the values of secret variables, long ones first, to be masked as well."""
    values = {
        value.encode(errors="surrogateescape")
        for name, value in environment
        if is_secret(name) and len(value) >= OWN_MIN_CHARS and not value.isdecimal()
    }
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def masked(raw: bytes, own: Iterable[bytes] = ()) -> Masked:
    """Return a text without its secrets.

    Args:
        raw: whole lines.
        own: values that are secret wherever they stand.
    """
    count = 0
    for secret in own:
        count += raw.count(secret)
        raw = raw.replace(secret, MASK.encode())
    for pattern, instead in (
        (_KEY_BLOCK, MASK.encode()),
        (_URL, rb"\g<scheme>" + MASK.encode() + b"@"),
        (_BEARER, rb"\g<head>\g<gap>" + MASK.encode()),
        (_KNOWN, MASK.encode()),
    ):
        raw, found = pattern.subn(instead, raw)
        count += found
    for pattern in (_ASSIGNED, _OPTION):
        raw, found = _without_values(raw, pattern)
        count += found
    return Masked(raw, count)


def masked_json(raw: bytes, own: Iterable[bytes] = (), *, lines: bool) -> Masked:
    """Return JSON without its secrets; what is none is masked as a text.

    Args:
        raw: a JSON text, or one each line.
        own: values that are secret wherever they stand.
        lines: each line is a text of its own.
    """
    own = tuple(own)
    if lines:
        parts = [masked_json(line, own, lines=False) for line in raw.split(b"\n")]
        return Masked(
            b"\n".join(part.raw for part in parts), sum(part.hidden for part in parts)
        )
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return masked(raw, own)
    walk = _Walk(own)
    try:
        plain = walk.plain(found)
    except RecursionError:
        return masked(raw, own)
    if not walk.count:
        return Masked(raw, 0)
    text = json.dumps(plain, separators=(",", ":"))
    return Masked(text.encode() + b"\n" * raw.endswith(b"\n"), walk.count)


def _without_values(raw: bytes, named: re.Pattern[bytes]) -> tuple[bytes, int]:
    """Return a text without the values of names that are secrets', and how many."""
    parts, done, count = list[bytes](), 0, 0
    for match in named.finditer(raw):
        if match.start() < done or not _may_be_secret(match):
            continue  # before its value is looked for: that may be as long as the text
        value = _VALUE.match(raw, match.end())
        if value is None or not _is_secret(match, value[0].strip(b"\"'")):
            continue
        quote = value[0][:1] if value[0][:1] in b"\"'" else b""
        parts += [raw[done : match.end()], quote, MASK.encode(), quote]
        done, count = value.end(), count + 1
    return b"".join([*parts, raw[done:]]), count


class _Walk:
    """Copies what JSON says, without secrets, and counts them."""

    def __init__(self, own: tuple[bytes, ...]) -> None:
        self._own = own
        self.count = 0

    def plain(self, found: object) -> object:
        """Return a value without secrets."""
        if isinstance(found, dict):
            return {key: self._field(key, value) for key, value in found.items()}
        if isinstance(found, list):
            return self._words(found)
        if isinstance(found, str):
            return self._text(found)
        return found

    def _field(self, name: str, value: object) -> object:
        if is_secret(name) and isinstance(value, str) and name.upper() == name:
            self.count += value not in {"", MASK}
            return MASK if value else value
        if isinstance(value, str) and ends_secret(name) and value not in {"", MASK}:
            self.count += 1
            return MASK
        return self.plain(value)

    def _words(self, found: list[object]) -> list[object]:
        """Return a list, in which a secret option's value is the next item."""
        words: list[object] = []
        option = False
        for item in found:
            if option and isinstance(item, str) and not item.startswith("-"):
                self.count += 1
                words.append(MASK)
            else:
                words.append(self.plain(item))
            named = isinstance(item, str) and item.startswith("--") and "=" not in item
            option = named and ends_secret(str(item))
        return words

    def _text(self, text: str) -> str:
        raw, hidden = masked(text.encode(errors="surrogatepass"), self._own)
        self.count += hidden
        return raw.decode(errors="surrogatepass") if hidden else text


def _may_be_secret(match: re.Match[bytes]) -> bool:
    """Return whether a name is one of a secret's.

    ``HF_TOKEN=`` is, and ``--api-key``; ``KeyError:`` is not: an exception is what the
    bundle is for.
    """
    name = match["name"].decode()
    return is_secret(name) and (name.upper() == name or ends_secret(name))


def _is_secret(match: re.Match[bytes], value: bytes) -> bool:
    """Return whether such a name's value is to be masked; ``tokens=4096`` is not."""
    name, between = match["name"].decode(), match["between"]
    if value == MASK.encode():
        return False
    if name.upper() == name:
        told = (b"=", b'"', b"'")
        return "_" in name or any(mark in between for mark in told)
    return not value.replace(b".", b"").isdigit()
