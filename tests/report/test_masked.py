"""What is taken for a secret, and what is left as it was."""

import json
import time

import pytest

from dsup.report.masked import masked, masked_json, masked_words, own_secrets
from dsup.report.secret_names import may_hold_secret


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


@pytest.mark.parametrize(
    ("text", "left"),
    [
        # Lists of words, and JSON inside of a string.
        ("['--token', 'qq1', '--lr', '1']", "['--token', '***', '--lr', '1']"),
        ('["--password", "qq1", 5]', '["--password", "***", 5]'),
        (r'{\"api_key\": \"qq1\", \"n\": 1}', r'{\"api_key\": \"***\", \"n\": 1}'),
        (r'{"api_key": "a\"qq1", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("['--api-key=a qq1', 'b']", "['--api-key=***', 'b']"),
        # Colours of a terminal, and newlines written out.
        ("\x1b[32mAPI_KEY\x1b[0m=\x1b[33mqq1\x1b[0m",
         "\x1b[32mAPI_KEY\x1b[0m=\x1b[33m***\x1b[0m"),
        ("\x1b[1;31mAPI_KEY=qq1\x1b[0m x", "\x1b[1;31mAPI_KEY=***\x1b[0m x"),
        (r"a\nhf_abcdefghijklmnopqrst", r"a\n***"),
        # Other names, other signs.
        ("passwd: qq1", "passwd: ***"),
        ("pass: qq1", "pass: ***"),
        ("pwd: qq1", "pwd: ***"),
        ("user: me pass: qq1", "user: me pass: ***"),
        ("apiKey: qq1", "apiKey: ***"),
        ("api_key -> qq1", "api_key -> ***"),
        ("password := qq1", "password := ***"),
        ("+model.api_key=qq1", "+model.api_key=***"),
        ("--hf-auth qq1 --lr 1", "--hf-auth *** --lr 1"),
        ("using api key qq1x2 now", "using api key *** now"),
        # Commands, headers and signed URLs.
        ("curl -u me:qq1 https://h", "curl -u me:*** https://h"),
        ("['curl', '-u', 'me:qq1']", "['curl', '-u', 'me:***']"),
        ("Cookie: a=qq1; b=qq2", "Cookie: ***"),
        ("Set-Cookie: a=qq1; Path=/", "Set-Cookie: ***"),
        ("curl -H 'Cookie: a=qq1; b=2' https://h", "curl -H 'Cookie: ***' https://h"),
        ("Authorization: qq1", "Authorization: ***"),
        ("Proxy-Authorization: Basic qq1", "Proxy-Authorization: Basic ***"),
        ("{'authorization': 'Token qq1', 'n': 1}",
         "{'authorization': 'Token ***', 'n': 1}"),
        ('["Authorization: qq1", "Accept: *"]', '["Authorization: ***", "Accept: *"]'),
        ("https://h/c?sv=1&sig=qq1%3D&se=2", "https://h/c?sv=1&sig=***&se=2"),
        ("AccountName=a;AccountKey=qq1==", "AccountName=a;AccountKey=***"),
        ("https://h/?X-Amz-Signature=qq1&a=2", "https://h/?X-Amz-Signature=***&a=2"),
        ("https://h/?X-Amz-Credential=qq1&a=2", "https://h/?X-Amz-Credential=***&a=2"),
        ("https://h/?a=2&X-Amz-Security-Token=qq1",
         "https://h/?a=2&X-Amz-Security-Token=***"),
        # Tokens with a form of their own.
        ("got eyJhbGciOiJub25l.eyJzdWIiOiJ.abc-_ now", "got *** now"),
        ("\x1b[32mnvapi-abcdefghijklmnopqrst", "\x1b[32m***"),
        ("AIza" + "b" * 35 + " now", "*** now"),
    ],
)  # fmt: skip
def test_a_secret_is_masked_however_a_log_writes_it(text, left):
    """Once, with nothing around it harmed; and no quick look passes it over."""
    assert masked(text.encode()) == (left.encode(), 1)
    assert may_hold_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "--tokenizer bert --max-tokens 7",
        "['--tokenizer', 'bert', '--max-tokens', '5', '--use-auth', 'a.py']",
        "argument --hf-token: expected one argument",
        "use_auth_token=True, token=None, pad_token='<pad>', eos_token=</s>",
        "forward pass: 12.3 ms, backward pass: RuntimeError: no",
        "PASS: test_step",
        "PWD=/root pwd: /root/x",
        "docker run -u 1000:1000 image; python -u train.py",
        "the api key is missing, the access token expired",
        "signal=9 sig=11, num_key_value_heads: 8, cookies: 5",
        "disk-abcdefghijklmnopqrstuvw task-0123456789abcdefgh",
        'password authentication failed for user "x"',
    ],
)
def test_words_that_are_like_a_secrets_are_left_alone(text):
    """What a model, a test or a message of an error says."""
    assert masked(text.encode()) == (text.encode(), 0)


def test_a_command_keeps_its_words():
    """As many as before, so that the run can be repeated once secrets are filled in."""
    words = {
        "train.py": "train.py",
        "--hf-auth": "--hf-auth",
        "V": "***",
        "postgres://u:p@h/d": "postgres://***@h/d",
        '{"password": "x y", "a": 1}': '{"password":"***","a":1}',
        "hf_abcdefghijklmnopqrst": "***",
        "MY_TOKEN=a b": "MY_TOKEN=***",
        "+model.api_key=z": "+model.api_key=***",
        "-u": "-u",
        "me:pw": "me:***",
        "--use-auth-token": "--use-auth-token",
        "--lr": "--lr",
        "Cookie: a=b": "Cookie: ***",
        "model.num_tokens=5": "model.num_tokens=5",
        "--pad-token=<pad>": "--pad-token=<pad>",
    }

    assert masked_words(words) == list(words.values())


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
     b'a_key=" ', b"a.b-", b"bearer ", b"A_KEY: '", b"://@", b"hf_", b"-eyJ",
     b"eyJaaaaaaaa.", b"Cookie: '", b'="', b"-u a",
     b"sig=", b"api key abc", b"\x1b[0m", b'a_key=\\\\"', b"'--a-key', "],
)  # fmt: skip
def test_the_time_is_linear_whatever_the_text(unit):
    """It takes a fraction of a second; with the square of it, it would be minutes."""
    start_s = time.process_time()
    masked(unit * (400_000 // len(unit)))

    assert time.process_time() - start_s < 60
