"""Which names are those of secrets. Pure."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

_SECRET_WORDS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
_ENDINGS: Final = frozenset(
    [
        "key",
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "pass",
        "pwd",
        "auth",
        "apikey",
        "accesskey",
        "secretkey",
        "accountkey",
        "privatekey",
        "accesstoken",
        "authtoken",
        "clientsecret",
    ]
)
_HINTS: Final = (
    *("key", "token", "secret", "pass", "pwd", "auth", "cookie", "bearer", "basic"),
    *("://", "sig=", "x-amz-", "x-goog-", "eyj", "hf_", "sk-", "sk_", "akia", "asia"),
    *("gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_", "glpat-", "xox", "nvapi-"),
    *("aiza", "ya29.", "npm_", "pypi-", "dckr_pat_", "gsk_"),
)
"""One of them is in any text that holds a secret; a login of curl's has none."""

_WEAK: Final = frozenset(("key", "auth"))
"""Alone they are names of other things: ``sorted(names, key=len)``."""

_FLAGS: Final = frozenset(("use", "no", "enable", "disable", "skip", "require"))
"""What begins with them is no name of a value: ``--use-auth``."""

_HEADERS: Final = frozenset(
    ("authorization", "proxy-authorization", "cookie", "set-cookie")
)
_DIRECTORIES: Final = frozenset(("PWD", "OLDPWD"))
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BREAKS: Final = str.maketrans("-. ", "___")
_NAME_MAX_CHARS: Final = 256


def is_secret(name: str) -> bool:
    """Return whether the value of a variable is to be masked."""
    upper = name.upper()
    if any(word in upper for word in _SECRET_WORDS):
        return True
    words = _words(name)
    return len(words) > 1 and words[-1] in {"pass", "pwd"}


def ends_secret(name: str) -> bool:
    """Return whether a name in small letters is that of a secret: its last word."""
    words = _words(name)
    if not words or words[-1] not in _ENDINGS or name in _DIRECTORIES:
        return False
    if words[-1] == "auth" and words[0] in _FLAGS:
        return False
    return len(words) > 1 or words[-1] not in _WEAK


def may_hold_secret(text: str) -> bool:
    """Return whether it is worth looking: what has no hint holds no secret."""
    lower = text.lower()
    return any(hint in lower for hint in _HINTS) or ("-u" in lower and ":" in lower)


def is_header(name: str) -> bool:
    """Return whether a field is a header of HTTP that lets its sender in."""
    return name.lower().strip() in _HEADERS


def _words(name: str) -> list[str]:
    """Return what a name is made of: ``api``, ``key`` for ``--api-key``, ``apiKey``."""
    name = name[-_NAME_MAX_CHARS:].strip("-+_. ")
    parted = name if name.isupper() else _HUMP.sub("_", name)
    return parted.translate(_BREAKS).lower().split("_")
