r"""Secrets that are known by their form, or by what stands around them. Pure.

Tokens begin as their makers let them, so that tools find them; headers of HTTP, signed
URLs and commands say what follows. Each form is looked for only where a word of it is
in the text at all. Every pattern is bounded or possessive and begins at a word's
beginning, so the time is linear whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from dsup.report.secret_names import MASK

WORD_START: Final = (
    rb"(?:(?<![A-Za-z0-9_.-])|(?<=\[m)|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m)"
    rb"|(?<=[\[;][0-9]{3}m)|(?<=\\[nrt]))"
)
"""A word's beginning, also behind a colour of a terminal or a newline written out."""

_MASK: Final = MASK.encode()
_Instead: TypeAlias = bytes | Callable[[re.Match[bytes]], bytes]


class _Form(NamedTuple):
    """How some kind of secret is found.

    Attributes:
        hints: one of them is in any text that holds such a secret, in small letters.
        instead: what is put in the place of a match.
    """

    hints: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    instead: _Instead = rb"\g<head>" + _MASK


_WORD_MAX: Final = 20
_MIXED: Final = re.compile(rb"[0-9][^A-Za-z]{0,32}[A-Za-z]|[A-Za-z][^0-9]{0,32}[0-9]")


def _said(match: re.Match[bytes]) -> bytes:
    """Mask what is called a secret in prose, if it looks like one.

    A token holds digits among letters, or is too long for a word; a sentence goes on
    with a word: ``the api key is missing``.
    """
    value = match["value"]
    if _MIXED.search(value) or len(value) >= _WORD_MAX:
        return match["head"] + _MASK
    return match[0]


_KEY_BLOCK: Final = _Form(
    (b"private key-----",),
    re.compile(
        rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,40}"
        rb"PRIVATE KEY-----)?"
    ),
    _MASK,
)
_URL: Final = _Form(
    (b"://",),
    re.compile(
        rb"(?<![A-Za-z0-9+.-])(?P<head>[A-Za-z][A-Za-z0-9+.-]{0,20}+://)"
        rb"[^\s/@\"'<>]{1,512}+@"
    ),
    rb"\g<head>" + _MASK + b"@",
)
_HEADER: Final = _Form(
    (b"authorization", b"cookie"),
    re.compile(
        rb"(?i)" + WORD_START + rb"(?P<head>(?P<word>(?<=[\"']))?"
        rb"(?:(?:proxy-)?authorization|(?:set-)?cookie)(?:\\{0,7}[\"'])?[ ]{0,2}[:=]"
        rb"[ ]{0,2}(?:b(?=[\"']))?(?P<open>\\{0,7}[\"'])?(?:(?:basic|bearer|digest"
        rb"|negotiate|ntlm|token|apikey|aws4-[a-z0-9-]{1,32})[ ]{1,2})?)(?!\*\*\*)"
        # Quotes around it end it; those of its own fields are a part of it.
        rb"(?(open)[^\"'\\\r\n]++|(?(word)[^\"'\\\r\n]++"
        rb"|(?>(?:[^\"'\r\n]|(?<==)[\"']|[\"'](?=,))+)))"
    ),
)
_BEARER: Final = _Form(
    (b"bearer", b"basic"),
    re.compile(
        rb"(?i)"
        + WORD_START
        + rb"(?P<head>(?:bearer|basic) )[A-Za-z0-9._~+/=-]{8,4096}+"
    ),
)
_JWT: Final = _Form(
    (b"eyj",),
    re.compile(
        rb"(?:(?<![A-Za-z0-9_-])|(?<=[\[;0-9][0-9]m)|(?<=\\[nrt]))"
        rb"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+(?:\.[A-Za-z0-9_-]*+){1,3}"
    ),
    _MASK,
)
_QUERY: Final = _Form(
    (b"sig", b"x-amz-", b"x-goog-", b"key=", b"token="),
    re.compile(
        rb"(?i)(?P<head>(?:"
        rb"(?<=[?&;])(?:sig|signature|key|api[_-]?key|(?:access[_-]?)?token)="
        rb"|"
        + WORD_START
        + rb"(?:sig(?==[A-Za-z0-9%+/]{16})|x-(?:amz|goog)-(?:signature|credential|"
        rb"security-token))(?:=|[\"']?[ ]{0,2}:[ ]{0,2}[\"']?)))"
        rb"""(?!\*\*\*)[^\s&"'<>\\]++"""
    ),
)
_LOGIN: Final = _Form(
    (b"-u",),
    re.compile(
        rb"""(?<![^\s"'(\[])(?P<head>(?:-[uU]|--user|--proxy-user)"""
        rb"""(?:[ =]{0,2}|["'],[ ]?)["']?[^\s:"'/@=,-][^\s:"'/@=,]{0,127}+:)"""
        # docker -u 1000:1000 names a user and a group.
        rb"""(?!\*\*\*|[0-9]{1,9}(?![^\s"']))[^\s"']{1,512}+"""
    ),
)
_PROSE: Final = _Form(
    (b"key", b"token", b"password", b"passwd"),
    re.compile(
        rb"(?i)"
        + WORD_START
        + rb"(?P<head>(?:(?:api|access|secret|auth|account|private)[ -](?:key|token)"
        rb"|password|passwd)(?:[ ](?:is|was|provided|used|given))?[ ]?[:=]?[ ]{1,2}"
        rb"""["'`]?)(?P<value>[A-Za-z0-9_+/=.~!@#$%^&*-]{4,4096}+)"""
    ),
    _said,
)
_KNOWN: Final = _Form(
    tuple(
        b"hf_ sk- sk_ gho_ ghp_ ghr_ ghs_ ghu_ github_pat_ glpat- xox akia asia "
        b"nvapi- aiza ya29. npm_ pypi- dckr_pat_ gsk_".split()
    ),
    re.compile(
        WORD_START
        + rb"(?:hf_[A-Za-z0-9]{16}|sk-[A-Za-z0-9_-]{16}|gh[oprsu]_[A-Za-z0-9]{16}"
        rb"|sk_(?:live|test)_[A-Za-z0-9]{12}|gsk_[A-Za-z0-9]{16}|npm_[A-Za-z0-9]{16}"
        rb"|github_pat_[A-Za-z0-9]{8}|glpat-[A-Za-z0-9_-]{12}|xox[abprs]-[A-Za-z0-9-]{8}"
        rb"|AKIA[A-Z0-9]{12}|ASIA[A-Z0-9]{12}|nvapi-[A-Za-z0-9_-]{16}"
        rb"|AIza[A-Za-z0-9_-]{30}|ya29\.[A-Za-z0-9_-]{16}|pypi-[A-Za-z0-9_-]{16}"
        rb"|dckr_pat_[A-Za-z0-9_-]{12})[A-Za-z0-9_-]{0,512}"
    ),
    _MASK,
)
_FORMS: Final = (
    (_KEY_BLOCK, _URL, _HEADER, _BEARER, _JWT, _KNOWN, _QUERY, _LOGIN, _PROSE)
)  # fmt: skip


def without_forms(raw: bytes) -> tuple[bytes, int]:
    """Return a text without the secrets that have a form, and how many there were."""
    count, lower = 0, raw.lower()
    for form in _FORMS:
        if not any(hint in lower for hint in form.hints):
            continue
        if callable(form.instead):
            raw, found = _judged(form.pattern, form.instead, raw)
        else:
            raw, found = form.pattern.subn(form.instead, raw)
        count += found
    return raw, count


def _judged(
    pattern: re.Pattern[bytes], judge: Callable[[re.Match[bytes]], bytes], raw: bytes
) -> tuple[bytes, int]:
    """Return a text with what a judge says in place of each match; equal is none."""
    parts, done, count = list[bytes](), 0, 0
    for match in pattern.finditer(raw):
        instead = judge(match)
        if instead != match[0]:
            parts += [raw[done : match.start()], instead]
            done, count = match.end(), count + 1
    return b"".join([*parts, raw[done:]]), count
