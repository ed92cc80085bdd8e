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

from dsup.report.secret_forms import WORD_START, without_forms
from dsup.report.secret_names import MASK, ends_secret, is_header, is_secret

OWN_MIN_CHARS: Final = 8
"""A shorter value of a variable may be a part of any word."""

_DASHES: Final = rb"-{0,2}"
_NAME: Final = rb"[A-Za-z_](?>(?:[A-Za-z0-9_.]|-(?!>)){0,127})"
_COLOUR: Final = rb"(?>(?:\x1b\[[0-9;]{0,16}m){0,3})"
_QUOTE: Final = rb"""\\{0,7}["']"""
_ASSIGNED: Final = re.compile(
    WORD_START + rb"(?P<name>" + _DASHES + _NAME + rb")"
    rb"(?P<between>" + _COLOUR + rb"(?:" + _QUOTE + rb")?" + _COLOUR + rb"[ ]{0,2}"
    rb"(?:=>|->|:=|[=:])"
    + _COLOUR
    + rb"[ ]{0,2}"
    + _COLOUR
    + rb"(?:[bru](?=[\\\"']))?)"
)
_OPTION: Final = re.compile(
    WORD_START + rb"(?P<name>--[A-Za-z_][A-Za-z0-9_.-]{0,127}+)"
    # A command's words, or a list's items.
    rb"(?P<between>[ ]{1,2}|" + _QUOTE + rb",\s{0,64}+[bru]?(?=[\\\"']))"
)
_VALUE: Final = re.compile(
    rb"""(?P<open>["'])(?>(?:(?!(?P=open))[^\\\r\n]|\\[^\r\n]){1,4096})(?P=open)"""
    rb"""|(?P<written>\\{1,7}["'])(?>(?:(?!(?P=written))[^\r\n]){1,4096})(?P=written)"""
    rb"""|[^\s\x1b]+"""
)
_INSIDE: Final = {
    quote: re.compile(rb"[^\r\n" + quote + rb"]{1,4096}?(?=\\{0,7}" + quote + rb")")
    for quote in (b'"', b"'")
}
"""The rest of a word in quotes: ``'--api-key=a b'``."""

_NONE: Final = re.compile(
    rb"(?i)(?:true|false|none|null|nil|no|yes)[,;)}\]]{0,4}|</?[a-z_|]{1,24}>.{0,4}"
    rb"|\[[a-z_]{1,16}\].{0,4}|\*\*\*.{0,8}"
)
"""Values that are no secret: ``use_token=True``, ``pad_token='<pad>'``."""

_LOGIN_OPTIONS: Final = frozenset(("-u", "-U", "--user", "--proxy-user"))


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
    raw, found = without_forms(raw)
    count += found
    for pattern in (_ASSIGNED, _OPTION) if b"--" in raw else (_ASSIGNED,):
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


def masked_text(text: str) -> str:
    """Return a text without its secrets; one without any as it is."""
    raw, hidden = masked(text.encode(errors="surrogatepass"))
    return raw.decode(errors="surrogatepass") if hidden else text


def masked_words(words: Iterable[str]) -> list[str]:
    """Return a command without its secrets: as many words as before.

    What has a secret's name is masked, and what has a secret's form in any word.
    """
    shown, before = list[str](), ""
    for word in words:
        shown.append(_word(before, word))
        before = word
    return shown


def _word(before: str, word: str) -> str:
    """Return a word without secrets.

    Args:
        before: the word before it.
        word: the word.
    """
    if _takes_secret(before) and not word.startswith("-"):
        return MASK if _tells(word) else word
    if before in _LOGIN_OPTIONS:
        return masked_text(f"{before} {word}").removeprefix(f"{before} ")
    name, equals, value = word.partition("=")
    if equals and _tells(value) and _names_secret(name, value):
        return f"{name}={MASK}"
    if word[:1] in {"{", "["}:
        raw, hidden = masked_json(word.encode(errors="surrogatepass"), lines=False)
        return raw.decode(errors="surrogatepass") if hidden else word
    return masked_text(word)


def _tells(value: str) -> bool:
    """Return whether a secret's value is one at all."""
    return bool(value) and not _NONE.fullmatch(value.encode(errors="surrogatepass"))


def _names_secret(name: str, value: str) -> bool:
    """Return whether ``name=value`` in a command gives a secret.

    A --tokenizer or --max-tokens is none, and needed to repeat the run.
    """
    bare = name.lstrip("+~")
    if bare.startswith("-"):
        return ends_secret(bare)
    variable = bare.isupper() and bare.isidentifier() and is_secret(bare)
    return variable or (ends_secret(bare) and not value.isdecimal())


def _takes_secret(word: str) -> bool:
    """Return whether the next word of a command is an option's secret."""
    return word.startswith("-") and "=" not in word and ends_secret(word)


def _without_values(raw: bytes, named: re.Pattern[bytes]) -> tuple[bytes, int]:
    """Return a text without the values of names that are secrets', and how many."""
    parts, done, count = list[bytes](), 0, 0
    for match in named.finditer(raw):
        if match.start() < done or not _may_be_secret(match):
            continue  # before its value is looked for: that may be as long as the text
        value = _value(raw, match)
        if value is None or not _is_secret(match, value[0].strip(b"\\\"'")):
            continue
        quote = _opening(value[0])
        parts += [raw[done : match.end()], quote, MASK.encode(), quote]
        done, count = value.end(), count + 1
    return b"".join([*parts, raw[done:]]), count


def _value(raw: bytes, match: re.Match[bytes]) -> re.Match[bytes] | None:
    """Return what follows a name; in a word in quotes that is its rest."""
    around = raw[match.start() - 1 : match.start()] if match.start() else b""
    inside = _INSIDE.get(around)
    if inside is not None and not set(match["between"]) & set(b"\"',"):
        rest = inside.match(raw, match.end())
        if rest is not None and rest[0][:1] not in {b'"', b"'", b"\\"}:
            return rest
    return _VALUE.match(raw, match.end())


def _opening(value: bytes) -> bytes:
    """Return the quote that a value begins with, as it is written."""
    bare = value.lstrip(b"\\")
    return value[: len(value) - len(bare) + 1] if bare[:1] in {b'"', b"'"} else b""


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
        named = ends_secret(name) or is_header(name)
        if isinstance(value, str) and named and value not in {"", MASK}:
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
    return ends_secret(name) or (name.upper() == name and is_secret(name))


def _is_secret(match: re.Match[bytes], value: bytes) -> bool:
    """Return whether such a name's value is to be masked; ``tokens=4096`` is not."""
    name, between = match["name"].decode(), match["between"]
    if not value or _NONE.fullmatch(value):
        return False
    if name.lower() in {"pass", "pwd"} and b"=" not in between:
        return _is_password(match, value)
    if name.startswith("-"):
        # An option's value is no option, and a usage message says ``--token: ...``.
        if value.startswith(b"-") or b":" in between:
            return False
    elif name.upper() == name:
        told = (b"=", b'"', b"'", b">")
        return "_" in name or any(mark in between for mark in told)
    return not value.replace(b".", b"").isdigit()


def _is_password(match: re.Match[bytes], value: bytes) -> bool:
    """Return whether ``pass: `` or ``pwd: `` is of a password.

    It may be the backward pass, or a directory.
    """
    if value[:1] in {b"/", b"~", b"."} or value[:1].isdigit():
        return False
    text, start = match.string, match.start()
    if text[start - 1 : start] != b" " or not text[start - 2 : start - 1].isalpha():
        return match["name"] not in {b"PASS", b"PWD"}
    return any(byte in b"0123456789" for byte in value)
