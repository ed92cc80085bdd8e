"""What the agent and its scribe say to each other over a SOCK_SEQPACKET pair.

A message is one datagram: a JSON object, a newline, and the text as raw bytes (a
journal line is JSON already and must not be quoted twice). Descriptors travel beside
it. An answer is one JSON object and cumulative, so that a lost moment costs nothing.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from dsup.core.output import Output, RankOutput, Route, Tone

TEXT_MAX_BYTES = 128 * 1024
MESSAGE_MAX_BYTES = TEXT_MAX_BYTES + 4096
ANSWER_MAX_BYTES = 64 * 1024
FDS_MAX = 2
CUT = "…".encode()
KEEP = b"keep"
AS_THEY_ARE = RankOutput(Route(file=True, console="raw"), Route(True, "raw"))

_TONES: dict[str, Tone] = {"warning": "warning", "failure": "failure"}


class Settings(NamedTuple):
    """What a scribe is told once, when it is forked.

    Attributes:
        run_dir: the run directory; it exists.
        local_world_size: how many ranks the node has.
        output: what becomes of the ranks' output; ranks beyond its list go to file and
            console as they are.
        rank_logs: False for ``--log-dir /dev/null``.
        file_mode: mode of new files, before the umask.
        dir_mode: mode of new directories, before the umask.
        journal_stream: device and inode of the stream that leads to systemd's journal;
            empty for none.
        socket: path of the agent's control socket, removed at the end; empty for none.
    """

    run_dir: str
    local_world_size: int
    output: Output = Output(ranks=())
    rank_logs: bool = True
    file_mode: int = 0o600
    dir_mode: int = 0o700
    journal_stream: str = ""
    socket: str = ""

    def route(self, local_rank: int, which: int) -> Route:
        """Return where a rank's stdout (0) or stderr (1) goes."""
        ranks = self.output.ranks
        streams = ranks[local_rank] if local_rank < len(ranks) else AS_THEY_ARE
        route = streams[which]
        return route if self.rank_logs else route._replace(file=False, filters=())


class Message(NamedTuple):
    """One message from the agent; what its kind does not need stays empty.

    Attributes:
        kind: ``open close page append journal say entry status prepare save tails ping
            end``.
        attempt: of open, close, page, prepare and tails.
        local_rank: of open.
        name: of save and append, relative to the run directory; of say and entry, the
            tone.
        text: of journal, say and status, without its newline; of append, whole lines;
            of entry, a line and a
            JSON object of its fields, one below the other; of save, KEEP where a file
            that is there stays.
        fds: read ends of stdout and stderr of open; the memory of page; the file of
            save; of tails, a memfd that ``encode_tail`` is appended to, stream by
            stream.
    """

    kind: str
    attempt: int = 0
    local_rank: int = 0
    name: str = ""
    text: bytes = b""
    fds: tuple[int, ...] = ()


class Answer(NamedTuple):
    """All that a scribe has done since its start.

    Attributes:
        ack: number of the last message it is done with.
        prepared: since the answer before: attempts with an error, or None.
    """

    ack: int
    prepared: tuple[tuple[int, str | None], ...] = ()


def fitting(text: str) -> bytes:
    """Return a text as a message takes it, cut where that is too long."""
    data = text.encode(errors="surrogateescape")
    if len(data) <= TEXT_MAX_BYTES:
        return data
    return data[: TEXT_MAX_BYTES - len(CUT)] + CUT


def encode(number: int, message: Message) -> bytes:
    """Return the datagram of a message; its descriptors go beside it."""
    head = [number, message.kind, message.attempt, message.local_rank, message.name]
    return json.dumps(head).encode() + b"\n" + message.text


def decode(data: bytes, fds: tuple[int, ...]) -> tuple[int, Message]:
    """Return the number and the message of a datagram.

    Raises:
        ValueError: the datagram is not one of ours.
    """
    head, _, text = data.partition(b"\n")
    number, kind, attempt, local_rank, name = json.loads(head)
    return int(number), Message(kind, attempt, local_rank, name, text, fds)


def tone(message: Message) -> Tone:
    """Return how grave what is to be said is."""
    return _TONES.get(message.name, "plain")


def encode_answer(answer: Answer) -> bytes:
    """Return the datagram of an answer."""
    return json.dumps(answer).encode()


def decode_answer(data: bytes) -> Answer:
    """Return the answer in a datagram.

    Raises:
        ValueError: the datagram is not one of ours.
    """
    ack, prepared = json.loads(data)
    return Answer(int(ack), tuple((int(n), error) for n, error in prepared))


def encode_tail(local_rank: int, which: int, tail: bytes) -> bytes:
    """Return one record of ``tails``: a JSON line, then the bytes themselves.

    Args:
        local_rank: whose stream it is.
        which: 0 for stdout, 1 for stderr.
        tail: the last bytes it wrote.
    """
    return json.dumps([local_rank, which, len(tail)]).encode() + b"\n" + tail


def decode_tails(data: bytes) -> dict[tuple[int, int], bytes]:
    """Return the last bytes of each stream, by local rank and 0 (stdout) or 1.

    Raises:
        ValueError: the data is not what ``encode_tail`` makes.
    """
    tails = {}
    while data:
        head, _, data = data.partition(b"\n")
        local_rank, which, size = json.loads(head)
        tails[int(local_rank), int(which)] = data[:size]
        data = data[size:]
    return tails
