"""What the agent still has to get written: a bounded queue of messages, no I/O.

Messages stay in the queue until they are acknowledged. When the scribe is replaced,
the conversation begins again: what is left is numbered from 1 and sent once more.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup.edges.scribe.protocol import Message

LIMIT_BYTES = 16 * 1024 * 1024
OVERHEAD_BYTES = 512
"""What a message is counted as beside its text, so that empty ones are bounded too."""


class Outbox:
    """Messages in order, numbered, each kept until it is acknowledged.

    Attributes:
        waiting_since: when the scribe last got something done while more was
            waiting, or when the first message came; agent clock; inf when none waits.
        refused: how many messages did not fit since ``restart``.
    """

    def __init__(self) -> None:
        self.waiting_since = inf
        self.refused = 0
        self._messages: deque[Message] = deque()
        self._acked = 0
        self._sent = 0
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many messages are not acknowledged."""
        return len(self._messages)

    def put(self, message: Message, now_s: float) -> bool:
        """Queue a message; return False, and count it, when there is no room."""
        cost = OVERHEAD_BYTES + len(message.text)
        if self._bytes + cost > LIMIT_BYTES:
            self.refused += 1
            return False
        if not self._messages:
            self.waiting_since = now_s
        self._messages.append(message)
        self._bytes += cost
        return True

    def unsent(self) -> tuple[int, Message] | None:
        """Return the next message to send and its number."""
        if self._sent == len(self._messages):
            return None
        return self._acked + self._sent + 1, self._messages[self._sent]

    def mark_sent(self) -> None:
        """Note that the message ``unsent`` returned is on its way."""
        self._sent += 1

    def ack(self, number: int, now_s: float) -> list[Message]:
        """Return the messages that are now done with; an ack is a sign of life."""
        done = []
        while self._acked < number and self._sent:
            done.append(self._pop())
            self._acked += 1
            self._sent -= 1
        self.waiting_since = now_s if self._messages else inf
        return done

    def restart(self, unneeded: Callable[[Message], bool], now_s: float) -> None:
        """Begin again with a new scribe, without the messages it does not need."""
        for _ in range(len(self._messages)):
            message = self._pop()
            if not unneeded(message):
                self._messages.append(message)
                self._bytes += OVERHEAD_BYTES + len(message.text)
        self._acked = self._sent = self.refused = 0
        self.waiting_since = now_s if self._messages else inf

    def texts(self, kind: str) -> list[bytes]:
        """Return the texts of one kind that nobody has acknowledged."""
        return [message.text for message in self._messages if message.kind == kind]

    def _pop(self) -> Message:
        message = self._messages.popleft()
        self._bytes -= OVERHEAD_BYTES + len(message.text)
        return message


class Budget:
    """How often a scribe may be started: so many times a minute.

    Source: restart intensity and period of Erlang/OTP's supervisor,
    https://www.erlang.org/doc/apps/stdlib/supervisor.html
    """

    def __init__(self, starts: int, period_s: float) -> None:
        self._period_s = period_s
        self._starts: deque[float] = deque([-inf] * starts, maxlen=starts)

    def free_at(self) -> float:
        """Return from when on another start is allowed; agent clock, seconds."""
        return self._starts[0] + self._period_s

    def spend(self, now_s: float) -> None:
        """Note a start."""
        self._starts.append(now_s)
