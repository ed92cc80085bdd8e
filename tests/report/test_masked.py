"""What is taken for a secret, and what is left as it was."""

import json
import time

import pytest

from dsup.report.masked import masked, masked_json, own_secrets


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("export HF_TOKEN=abc", "export HF_TOKEN=***"),
        ("env:HF_TOKEN=abc", "env:HF_TOKEN=***"),
        ("WANDB_API_KEY: abc", "WANDB_API_KEY: ***"),
        ("{'AWS_SECRET_ACCESS_KEY': 'a/b', 'X': 1}", None),
        ('DB_PASSWORD="a b" next', 'DB_PASSWORD="***" next'),
        ('PASSWORD=a,b;c"d next', "PASSWORD=*** next"),
        ("MY_SECRET='open and never shut", "MY_SECRET='***' and never shut"),
        ("--api-key abc --lr 0.1", "--api-key *** --lr 0.1"),
        ("Config(hf_token=b'abc', lr=1)", "Config(hf_token=b'***', lr=1)"),
        ("password: hunter2", "password: ***"),
        ("postgres://me:pw@host/db", "postgres://***@host/db"),
        ("Authorization: Bearer abcdefgh", "Authorization: Bearer ***"),
        ("using hf_abcdefghijklmnopqrst now", "using *** now"),
    ],
)
def test_a_secret_is_masked(text, left):
    """By the name that it follows, or by its form."""
    if left is None:
        left = text.replace("a/b", "***")

    assert masked(text.encode()) == (left.encode(), 1)


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'model.layers.0.weight'",
        "KEY ERROR",
        "num_tokens=4096, max_tokens: 12, tokens/s: 18.5",
        "store key: 5",
        "sorted(names, key=len)",
        "token: 17",
        "HF_TOKEN=***",
        "see https://pytorch.org/docs/stable/elastic.html#e@mail",
        "[rank3]: RuntimeError: [gloo] Connection closed by peer [10.0.0.1]:27032",
    ],
)
def test_what_is_no_secret_is_left_alone(text):
    """An exception is what the bundle is for."""
    assert masked(text.encode()) == (text.encode(), 0)


def test_values_that_are_known_are_masked_wherever_they_stand():
    """Of variables with a secret's name; a short one may be part of any word."""
    environment = {"A_KEY": "correct-horse", "B_TOKEN": "abc", "C": "battery-staple"}
    own = own_secrets(environment.items())

    assert own == (b"correct-horse",)
    assert masked(b"it was correct-horse, abc", own).raw == b"it was ***, abc"


def test_a_private_key_is_masked_whole():
    """All of its lines."""
    text = (
        b"-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\n"
    )

    assert masked(b"a\n" + text + b"b\n").raw == b"a\n***\nb\n"


def test_json_stays_json():
    """Fields, options in a list, and texts inside strings."""
    found = {
        "environment": {"A_TOKEN": "x", "HOME": "/root"},
        "argv": ["--hf-token", "abc", "--api-key=q", "--lr", "1"],
        "text": 'MY_SECRET=a"b',
        "password": "x",
        "tokens": 5,
    }
    raw, hidden = masked_json(json.dumps(found).encode(), lines=False)

    assert json.loads(raw) == {
        "environment": {"A_TOKEN": "***", "HOME": "/root"},
        "argv": ["--hf-token", "***", "--api-key=***", "--lr", "1"],
        "text": "MY_SECRET=***",
        "password": "***",
        "tokens": 5,
    }
    assert hidden == 5


def test_json_without_secrets_is_left_as_it_is_byte_for_byte():
    """Also what is no JSON at all."""
    raw = b'{"a":  1}\n{"b": \n\xff\xfe\n' + b"[" * 50_000

    assert masked_json(raw, lines=True) == (raw, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [b"A", b"KEY=", b"--a ", b"http://", b"-----BEGIN PRIVATE KEY-----", b'a_key="',
     b'a_key=" ', b"a.b-", b"bearer ", b"A_KEY: '", b"://@", b"hf_"],
)  # fmt: skip
def test_the_time_is_linear_whatever_the_text(unit):
    """Twice the text takes about twice the time."""
    took_s = []
    for size in (100_000, 400_000):
        raw = unit * (size // len(unit))
        best = 1e9
        for _ in range(3):
            start_s = time.process_time()
            masked(raw)
            best = min(best, time.process_time() - start_s)
        took_s.append(best)

    assert took_s[1] < 10 * took_s[0] + 0.05
