"""The page in a browser: nothing foreign runs, nothing overlaps, it prints well."""

import functools
import html
import json
import re
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from dsup.report.html.page import render

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MEASURE = """
const wide = document.documentElement.scrollWidth;
const pictures = [...document.querySelectorAll("svg[role=img]")];
document.title = JSON.stringify([wide, ...pictures.map((svg) => {
    const box = (e) => { const r = e.getBoundingClientRect();
      return [r.left, r.top, r.right, r.bottom].map(Math.round); };
    return {box: box(svg), texts: [...svg.querySelectorAll("text")].filter(
      (t) => t.checkVisibility()).map((t) => [t.textContent, ...box(t)])};
  })]);
"""
"""Run only in a copy of a page without its policy: the page itself runs nothing."""


@pytest.fixture
def chromium(tmp_path):
    """Give ``chromium(page, *options)``: the page in a browser of its own."""

    def start(page, *options):
        file = tmp_path / "report.html"
        file.write_text(page, encoding="utf-8")
        found = subprocess.run(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                f"--user-data-dir={tmp_path / 'browser'}",
                *options,
                f"file://{file}",
            ],
            capture_output=True,
            check=True,
            timeout=600,
        )
        return found.stdout.decode()

    return start


@pytest.fixture
def measured(chromium):
    """Give ``measured(page)``: its width, its pictures and where their labels lie."""

    def measure(page):
        free = re.sub(r"<meta http-equiv[^>]*>", "", page)
        free = free.replace("</body>", f"<script>{MEASURE}</script></body>")
        shown = chromium(free, "--window-size=1184,1000", "--dump-dom")
        (title,) = re.findall(r"<title>(\[.*?\])</title>", shown, re.DOTALL)[:1]
        return json.loads(html.unescape(title))

    return measure


@pytest.fixture
def pixels(chromium, tmp_path):
    """Give ``pixels(page, width, height, *options)``: a screenshot as rows of bytes."""

    def shoot(page, width, height, *options):
        file = tmp_path / "shot.png"
        size = f"--window-size={width},{height}"
        chromium(page, size, f"--screenshot={file}", *options)
        return rows_of(file, width)

    return shoot


def rows_of(file, width):
    """Return a PNG of eight bits a channel as rows of pixels."""
    raw, at, data, depth = Path(file).read_bytes(), 8, b"", 3
    while at < len(raw):
        size, kind = struct.unpack(">I4s", raw[at : at + 8])
        if kind == b"IHDR":
            depth = {2: 3, 6: 4}[raw[at + 17]]
        if kind == b"IDAT":
            data += raw[at + 8 : at + 8 + size]
        at += size + 12
    data, step = zlib.decompress(data), width * depth + 1
    above, found = bytes(step - 1), []
    for start in range(0, len(data), step):
        line = unfiltered(data[start], data[start + 1 : start + step], above, depth)
        found.append([tuple(line[x : x + 3]) for x in range(0, len(line), depth)])
        above = line
    return found


def unfiltered(kind, line, above, depth):
    """Return a line of a PNG without its filter."""
    out = bytearray(line)
    for x in range(len(out)):
        left = out[x - depth] if x >= depth else 0
        corner = above[x - depth] if x >= depth else 0
        if kind == 1:
            out[x] = (out[x] + left) & 255
        elif kind == 2:
            out[x] = (out[x] + above[x]) & 255
        elif kind == 3:
            out[x] = (out[x] + (left + above[x]) // 2) & 255
        elif kind == 4:
            out[x] = (out[x] + slope(left, above[x], corner)) & 255
    return bytes(out)


def slope(left, above, corner):
    """Return the neighbour that is nearest to where a slope would go on."""
    guess = left + above - corner
    return min((left, above, corner), key=lambda one: abs(guess - one))


def test_hostile_text_does_not_run(stories, chromium):
    """No script of a rank, a log or a name runs; the title stays the page's."""
    shown = chromium(render(stories.hostile()), "--dump-dom")

    assert "<title>owned" not in shown
    assert "<title>Rank 5 " in shown
    assert "\\x1b[2J\\u202e" in shown


def test_policy_holds_against_a_script_in_the_page(stories, chromium):
    """Even a script that got into the page would not run; the page's own does."""
    bad = (
        "<script>document.title='owned'</script><img src=x onerror=document.title='o'>"
    )
    page = render(stories.run()).replace("<main>", f"<main>{bad}")
    shown = chromium(page, "--dump-dom")

    assert "<title>Rank 5 killed" in shown
    assert 'id="theme">Light' in shown  # the page's own script has shown the button


@pytest.mark.parametrize("ranks", [8, 64])
def test_the_answer_is_seen_without_scrolling(stories, measured, ranks):
    """Verdict, advice and timeline with its memory fit a window of 1184 x 1000."""
    _, whole, *_ = measured(render(stories.run(ranks=ranks)))

    assert whole["box"][2] <= 1184
    assert whole["box"][3] <= 1000


def test_no_labels_overlap_in_the_browser(any_story, measured):
    """With the fonts of this browser nothing is too wide, and no labels overlap."""
    wide, *charts = measured(render(any_story))

    assert wide <= 1184
    for chart in charts:
        texts = [text for text in chart["texts"] if text[0]]
        for number, (one, *a) in enumerate(texts):
            for other, *b in texts[number + 1 :]:
                apart = a[2] <= b[0] + 1 or b[2] <= a[0] + 1
                high = min(a[3], b[3]) - max(a[1], b[1])
                assert apart or high <= 6, (one, other)  # boxes hold air above letters


def test_light_and_dark(stories, pixels):
    """The page follows the reader's theme."""
    page = render(stories.run())
    light = pixels(page, 1184, 900, "--blink-settings=preferredColorScheme=1")
    dark = pixels(page, 1184, 900, "--blink-settings=preferredColorScheme=0")

    assert light[2][2] == (0xFF, 0xFF, 0xFF)
    assert dark[2][2] == (0x0F, 0x13, 0x18)
    count = functools.partial(sum, start=0)
    for shot, orange, blue in (
        (light, (0xB8, 0x40, 0x0A), (0x4A, 0x7F, 0xB5)),
        (dark, (0xFF, 0x92, 0x55), (0x5B, 0x93, 0xCC)),
    ):
        loud = count(row.count(orange) for row in shot)
        calm = count(row.count(blue) for row in shot)
        assert 2000 < loud < calm


@pytest.mark.parametrize("ranks", [8, 1000])
def test_print(stories, chromium, tmp_path, ranks):
    """Printed it is two or three pages, its folded parts opened."""
    file = tmp_path / "report.pdf"
    page = render(stories.run(ranks=ranks))
    chromium(page, "--no-pdf-header-footer", f"--print-to-pdf={file}")
    pages = re.findall(rb"/Type\s*/Page\b", file.read_bytes())

    assert 2 <= len(pages) <= 3


def test_a_thousand_ranks_are_shown(stories, pixels):
    """The page of a thousand ranks is drawn, too."""
    shot = pixels(render(stories.run(ranks=1000)), 1184, 500)

    assert sum(row.count((0xB8, 0x40, 0x0A)) for row in shot) > 1000
