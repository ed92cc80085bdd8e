"""The page as text: its policy, its sections, its size, and that nothing runs."""

import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser

import pytest

from dsup.core.exits import CAUSES
from dsup.report.html import phrases
from dsup.report.html.page import policy, render
from dsup.report.html.story import Told


class Elements(HTMLParser):
    """Collects elements with their attributes, and the text."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        """Keep an element."""
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        """Keep a text."""
        self.text += data


def headings(page):
    """Return the headings of the parts."""
    return re.findall(r"<h2>(.*?)</h2>", page)


def test_policy_allows_the_one_script(stories):
    """The policy has the hash of the page's one script, and allows nothing else."""
    page = render(stories.run())
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()

    assert f"script-src &#39;sha256-{digest}&#39;" in page
    assert "default-src 'none'" in policy(script)
    assert len(script) < 3000


def test_nothing_is_loaded(any_story):
    """No element of the page refers to anything outside it."""
    for tag, attrs in Elements(render(any_story)).found:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        for name, value in attrs.items():
            assert not name.startswith("on")
            assert name not in {"src", "action", "xlink:href"}
            assert name != "href" or value.startswith("#")
            assert "url(" not in (value or "")


def test_hostile_text_is_text(stories):
    """Whatever ranks and logs say stays text, and turns no direction of writing."""
    page = render(stories.hostile())
    elements = Elements(page)

    assert [tag for tag, _ in elements.found].count("script") == 1
    assert "img" not in [tag for tag, _ in elements.found]
    for letter in ("\x1b", "\u202e", "\u2028", "\x00"):
        assert letter not in page
    assert "\\x1b[2J\\u202e\\u2028\\x00" in elements.text
    assert "{{7*7}}" in elements.text


def test_sections_in_order(stories):
    """The parts of the page come in their order."""
    assert headings(render(stories.run())) == [
        "What to do",
        "Timeline",
        "The last seconds of attempt 1",
        "Evidence",
        "Who ended, and of what",
        "Both attempts compared",
        "Where the time went",
        "More",
    ]


def test_empty_sections_are_left_out(stories):
    """What a log does not tell is not shown empty."""
    page = render(stories.log(spans=(), evidence=(), advice=None))

    assert headings(page) == ["Who ended, and of what"]
    assert "<dt>exit code" not in page
    assert "<dt>died" in page


def test_ids_are_unique(any_story):
    """No two elements have the same id, so copies copy what they say."""
    found = Elements(render(any_story)).found
    ids = [attrs["id"] for _, attrs in found if "id" in attrs]

    assert len(ids) == len(set(ids))
    for _, attrs in found:
        for name in ("data-copy", "aria-labelledby"):
            assert set((attrs.get(name) or "").split()) <= set(ids)


def test_pictures_are_told(stories):
    """Each picture has a title and a story for those who do not see it."""
    page = render(stories.run())

    assert page.count('role="img"') == 2
    assert "8\N{NO-BREAK SPACE}ranks, 2\N{NO-BREAK SPACE}attempts. Rank 5 was" in page


def test_buttons_are_hidden_without_the_script(stories):
    """No button is there that would do nothing."""
    for tag, attrs in Elements(render(stories.run(ranks=64))).found:
        assert tag not in {"button", "input"} or "hidden" in attrs


@pytest.mark.parametrize(("ranks", "most_kb"), [(8, 150), (64, 200), (1000, 500)])
def test_size(stories, ranks, most_kb):
    """Eight ranks are at most 150 KB, a thousand 500 KB."""
    page = render(stories.run(ranks=ranks, attempts=3))

    assert len(page.encode()) <= most_kb * 1024


def test_size_with_long_texts(stories):
    """Texts are capped: a rank that printed gigabytes makes no large page."""
    line = "x" * 100_000
    story = stories.run()._replace(
        output=(line,) * 500, kernel=("k" * 400,) * 9000, panel=("p" * 80,) * 14
    )
    page = render(story)

    assert len(page.encode()) <= 300 * 1024
    assert "more characters)" in page


@pytest.mark.slow
def test_the_work_grows_with_the_ranks_and_not_with_their_square(stories, calls_of):
    """The page of a thousand ranks takes no minutes."""
    few, many = stories.run(ranks=50), stories.run(ranks=400)
    render(few)

    assert calls_of(lambda: render(many)) < 12 * calls_of(lambda: render(few))


def test_all_ranks_are_folded_in(stories):
    """Of a thousand ranks each has its row in the folded table."""
    page = render(stories.run(ranks=1000))

    assert len(re.findall(r"<tr><td>\d+<td>", page)) == 1000
    assert 'id="filter"' in page
    assert 'id="filter"' not in render(stories.run())


def test_one_path_for_each_class(stories):
    """A chart has one path for each kind of shape, not one for each bar."""
    page = render(stories.run())
    chart = page[page.index('aria-labelledby="whole-t') :]
    kinds = re.findall(r'<path class="([\w-]+)"', chart[: chart.index("</svg>")])

    assert len(kinds) == len(set(kinds))
    assert {"run", "first", "gap", "band", "own", "limit"} <= set(kinds)
    numbers = re.findall(r"\d+\.\d+", "".join(re.findall(r' d="([^"]*)"', page)))
    assert all(len(n.partition(".")[2]) == 1 for n in numbers)


def test_stacks_of_a_hang_are_open(stories):
    """Where a rank hangs its stack is open; where it left the others is marked."""
    page = render(stories.hang())

    assert "<details open><summary><b>Stacks" in page
    assert "<mark>  File &#34;train.py&#34;, line 50 in step</mark>" in page
    assert "<b>  File &#34;dataloader.py&#34;" in page
    assert "<mark>  File &#34;dataloader.py" not in page
    assert "<mark>  File &#34;train.py&#34;, line 203" not in page
    began = [key for key in re.findall(r"<dt>(.*?)</dt>", page) if key == "began"]
    assert began


def test_certainty_is_in_the_words(stories):
    """A first rank that is only likely is called so beside its row."""
    assert "likely first · raised ValueError" in render(stories.log())


def test_what_is_missing_is_named(stories):
    """An unknown cause says what could change the answer."""
    page = render(stories.unknown())

    assert "What could change this answer: the kernel log could not be read" in page
    assert "Would change the answer:" in page


def test_title_names_the_rank(stories):
    """The title says who, what and which run."""
    page = render(stories.run())

    assert "<title>Rank 5 killed by the kernel (OOM) · 20261130T" in page


def test_each_cause_has_few_words():
    """Every cause has its words for the end of a row."""
    assert set(phrases.SHORT) == set(CAUSES)
    assert all(len(words) <= 30 for words in phrases.SHORT.values())


def test_subject_of_a_sentence():
    """The first rank is the loud part of the heading; without one nothing is loud."""
    assert phrases.subject("Rank 5 was killed.") == ("Rank 5", " was killed")
    assert phrases.subject("Ranks 8 to 15 lost it.") == ("Ranks 8 to 15", " lost it")
    assert phrases.subject("Ranks 1-2, 5 fell.") == ("Ranks 1-2, 5", " fell")
    assert phrases.subject("All 8 ranks raised X.") == ("All 8 ranks", " raised X")
    assert phrases.subject("The agent went.") == ("", "The agent went")


def test_evidence_is_linked(stories):
    """The numbers of the evidence that a verdict rests on lead to it."""
    page = render(stories.run())

    assert 'rests on <a href="#E1">E1</a> to <a href="#E5">E5</a>' in page
    assert '<tr id="E3">' in page


def test_first_rank_of_another_node(stories):
    """A first rank that this node's journal does not know breaks nothing."""
    story = stories.run(attempts=1)
    verdict = story.attempt.verdict._replace(first_ranks=(99,), victims=())
    attempt = story.attempt._replace(verdict=verdict)
    told = story.told[0]._replace(verdict=verdict, node="gpu-b01")
    page = render(story._replace(attempts=(attempt,), told=(told,)))

    assert "99 on gpu-b01" in page


def test_agent_gone(stories):
    """Two verdicts of one attempt are no two attempts; the last one is the page's."""
    story = stories.run(attempts=1)
    gone = story.attempt.verdict._replace(
        cause="agent_killed",
        first_ranks=(),
        summary="The agent was killed in attempt 0: its journal just ends.",
    )
    page = render(story._replace(told=(*story.told, Told(gone, "gpu-a17"))))

    assert "<h1>The agent was killed in attempt 0: its journal just ends</h1>" in page
    assert "compared</h2>" not in page


def test_facts(stories):
    """The strip says cause, certainty, rank, time, what followed, and the exit code."""
    page = render(stories.run())
    strip = dict(re.findall(r"<dt>(.*?)</dt><dd><span[^>]*>(.*?)</span>", page))

    assert strip == {
        "cause": "host_oom",
        "certainty": "proven",
        "first rank": "5 on gpu-a17",
        "died": "14:39:28.518 UTC",
        "then dsup": "gave up",
        "exit code": "137",
    }


def test_where_nobody_is_first_nobody_has_the_loud_colour(stories):
    """The first rank of a sentence may be a victim."""
    told = stories.run(attempts=1)
    verdict = told.main.verdict._replace(
        first_ranks=(), summary="Rank 0 timed out; nobody tells for whom it waited."
    )
    page = render(told._replace(told=(Told(verdict),)))

    assert "<h1>Rank 0 timed out" in page


def test_rules_without_a_word_are_named_and_not_listed(stories):
    """Thirty rows of a dash say nothing."""
    page = render(stories.run(attempts=1))
    table = page.partition("How the rules decided")[2].partition("</details>")[0]

    assert table.count("<tr>") == 3
    assert "<b>Asked before it, and silent:</b> obstacle, hang." in table


@pytest.mark.parametrize(("cause", "opened"), [("import_error", 1), ("host_oom", 0)])
def test_a_scripts_own_error_is_read_at_once(stories, cause, opened):
    """The traceback is what a person wants to see of it."""
    story = stories.run(attempts=1)
    verdict = story.main.verdict._replace(cause=cause)
    page = render(story._replace(told=(Told(verdict),)))

    assert page.count("<details open><summary><b>Last output") == opened


def test_a_log_without_a_zone_gets_none(stories):
    """Its times are of a place that nobody told."""
    page = render(stories.log()._replace(zone=""))

    assert " UTC" in render(stories.log()).partition("<footer>")[0]
    assert "UTC" not in page.partition("<footer>")[0]
