"""An address to listen on, as people write it. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dsup.core.errors import SpecError

_ADDRESS: Final = re.compile(
    r"(?:\[([0-9A-Fa-f:.%a-z]{2,64})\]|([A-Za-z0-9._-]{1,253})):([0-9]{1,5})"
)
_PORT_MAX: Final = 65535


class Address(NamedTuple):
    """Where to listen: a host, without brackets, and a port."""

    host: str
    port: int


def address(text: str) -> Address:
    """Return the address of ``HOST:PORT`` or ``[IPV6]:PORT``.

    Raises:
        SpecError: it is neither.
    """
    match = _ADDRESS.fullmatch(text)
    port = int(match[3]) if match else 0
    if match is None or not 0 < port <= _PORT_MAX:
        raise SpecError(
            f"cannot serve metrics on {text!r}, because it is no HOST:PORT "
            "(127.0.0.1:9100 for this node alone, 0.0.0.0:9100 for all, [::1]:9100)"
        )
    return Address(match[1] or match[2], port)
