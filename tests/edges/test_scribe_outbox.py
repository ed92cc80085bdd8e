"""The agent's queue for the scribe: in order, bounded, nothing forgotten."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.edges.scribe.outbox import LIMIT_BYTES, Budget, Outbox
from dsup.edges.scribe.protocol import (
    Answer,
    Message,
    decode,
    decode_answer,
    encode,
    encode_answer,
)


def line(number, size=0):
    return Message("journal", text=b"%d" % number + b"x" * size)


def keep_all(message):
    return False


def send_all(outbox):
    sent = []
    while waiting := outbox.unsent():
        sent.append(waiting)
        outbox.mark_sent()
    return sent


@given(
    st.lists(
        st.one_of(
            st.just(("put",)),
            st.just(("send",)),
            st.tuples(st.just("ack"), st.integers(0, 30)),
            st.just(("restart",)),
        )
    )
)
def test_every_message_reaches_a_living_scribe_in_order(steps):
    """Whatever dies when: a scribe hears all that no other has acknowledged."""
    outbox, put, heard, acked = Outbox(), 0, [], 0
    for step, *numbers in steps:
        match step:
            case "put":
                outbox.put(line(put), 0.0)
                put += 1
            case "send":
                heard += [int(message.text) for _, message in send_all(outbox)]
            case "ack":
                done = outbox.ack(min(len(heard), *numbers), 0.0)
                acked += len(done)
            case _:
                outbox.restart(keep_all, 0.0)
                heard = []
    outbox.restart(keep_all, 0.0)

    sent = send_all(outbox)
    assert [number for number, _ in sent] == list(range(1, len(sent) + 1))
    assert [int(message.text) for _, message in sent] == list(range(acked, put))


def test_silence_counts_from_the_last_thing_done():
    """An acknowledgement starts the wait again; with nothing waiting there is none."""
    outbox = Outbox()
    assert outbox.waiting_since == inf
    outbox.put(line(1), 10.0)
    outbox.put(line(2), 11.0)
    assert outbox.waiting_since == 10.0
    send_all(outbox)
    outbox.ack(1, 12.0)
    assert outbox.waiting_since == 12.0
    outbox.ack(2, 13.0)
    assert outbox.waiting_since == inf


def test_the_queue_is_bounded():
    """A scribe that takes nothing costs the agent 16 MiB and no more."""
    outbox = Outbox()
    taken = sum(outbox.put(line(n, 60_000), 0.0) for n in range(400))

    assert taken * 60_000 <= LIMIT_BYTES
    assert outbox.refused == 400 - taken
    send_all(outbox)
    outbox.ack(1, 0.0)
    assert outbox.put(line(0, 60_000), 0.0)


def test_a_replacement_is_spared_what_it_inherits():
    """Opened streams are inherited by the fork, so they are not told again."""
    outbox = Outbox()
    for message in (line(1), Message("open", fds=(7, 8)), line(2)):
        outbox.put(message, 0.0)
    outbox.restart(lambda message: message.kind == "open", 0.0)

    assert send_all(outbox) == [(1, line(1)), (2, line(2))]


def test_what_was_not_said_is_known():
    """The agent can print at last what no scribe has taken."""
    outbox = Outbox()
    for text in (b"first", b"second"):
        outbox.put(Message("say", text=text), 0.0)
    outbox.put(line(1), 0.0)
    send_all(outbox)
    outbox.ack(1, 0.0)

    assert outbox.texts("say") == [b"second"]


def test_starts_are_counted_by_the_minute():
    """Three starts a minute: the fourth has to wait until the first is a minute old."""
    budget = Budget(3, 60.0)
    for now_s in (0.0, 10.0, 20.0):
        assert budget.free_at() <= now_s
        budget.spend(now_s)

    assert budget.free_at() == 60.0


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Message("journal", text=b'{"a": "\xff\n"}'), id="bytes stay"),
        pytest.param(Message("open", 3, 7, fds=(4, 5)), id="numbers"),
        pytest.param(Message("save", name='a"\nb', fds=(4,)), id="odd name"),
    ],
)
def test_a_message_arrives_as_it_was(message):
    """Encoding a message and decoding it gives the same message."""
    assert decode(encode(9, message), message.fds) == (9, message)


def test_an_answer_arrives_as_it_was():
    """Encoding an answer and decoding it gives the same answer."""
    answer = Answer(12, ((1, None), (2, "no space left on device")))
    assert decode_answer(encode_answer(answer)) == answer
