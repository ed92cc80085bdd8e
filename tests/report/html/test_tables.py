"""The tables: evidence, ends, attempts beside each other."""

import pytest

from dsup.report.html import attempts, tables
from dsup.report.html.tables import marked


def plain(text):
    """Return a text with ordinary blanks."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def raw(proof):
    """Return the words of a piece of evidence."""
    return "".join(part for piece in proof.pieces for part in piece.parts)


def marks(proof):
    """Return what is marked in it."""
    return [piece.parts[0] for piece in proof.pieces if piece.marked]


def test_evidence_keeps_the_original_words(stories):
    """A raw line is whole and unchanged, its place in a column of its own."""
    story = stories.run()
    first, second, *_ = tables.evidence(story)
    said = story.told[-1].verdict.evidence[0].text

    assert raw(first) == said.rpartition(" [kmsg")[0]
    assert first.where == ("kmsg seq 918204",)
    assert second.where == ("kmsg seq 918203",)


def test_telling_words_are_marked(stories):
    """The pid, the memory, the constraint, the signal and the counter are marked."""
    found = tables.evidence(stories.run())

    assert marks(found[0]) == ["41877", "anon-rss:168820736kB"]
    assert marks(found[1]) == ["CONSTRAINT_MEMCG", "41877"]
    assert marks(found[2]) == ["41877", "SIGKILL"]
    assert marks(found[3]) == ["oom_kill 1 -> 2"]


def test_words_of_victims_are_not_marked(stories):
    """What a victim said is no proof, so nothing of it is loud."""
    victim = tables.evidence(stories.run())[5]

    assert victim.rank == "4"
    assert marks(victim) == []


def test_plain_reading(stories):
    """A kernel line is read for those who do not read them daily."""
    reading = plain(tables.evidence(stories.run())[0].reading)

    assert reading == "161 GiB resident; pid 41877 is rank 5 itself"


def test_times_count_from_the_death(stories):
    """Evidence says how much before or after the death it is from."""
    when = [plain(one.when) for one in tables.evidence(stories.run())]

    assert when[:3] == ["0 s", "0 s", "+1.58 s"]
    assert when[3] == ""
    assert when[4] == "−9 s"  # noqa: RUF001 (a minus is what the page shows)


def test_looked_at_is_no_evidence(stories):
    """What was looked at and proves nothing has no number."""
    story = stories.run()

    assert len(tables.evidence(story)) == 6
    assert tables.quiet(story) == ["Xid and ECC of all 8 GPUs, no change"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch.OutOfMemoryError: CUDA", ["OutOfMemoryError"]),
        ("NVRM: Xid (PCI:0000:cb:00): 79, pid=5", ["Xid (PCI:0000:cb:00): 79", "5"]),
        ("python[71]: segfault at 18 ip 00007f", ["segfault at 18"]),
        ("nothing to see", []),
    ],
)
def test_marks(text, words):
    """Words that tell are found in lines of every kind."""
    found = marked(text, mark=True)

    assert "".join(part for piece in found for part in piece.parts) == text
    assert [piece.parts[0] for piece in found if piece.marked] == words


def test_who_ended_and_of_what(stories):
    """The first rank is on top, then its victims, then whom dsup ended."""
    rows = [(e.ranks, e.role, plain(e.how)) for e in tables.ends(stories.run())]

    assert rows == [
        ("5", "first", "killed by the kernel (OOM), SIGKILL"),
        (
            "4, 6",
            "victims of rank 5",
            "connection closed by peer, exit 1, +1.64 to +1.66 s",
        ),
        ("0-3, 7", "ended by dsup", "SIGTERM from dsup; all gone at +2.5 s"),
    ]


def test_ends_of_a_log(stories):
    """In another launcher's log it was that launcher who ended ranks."""
    rows = [(e.ranks, e.role) for e in tables.ends(stories.log())]

    assert rows == [
        ("2", "first"),
        ("1", "victim of rank 2"),
        ("0, 3", "ended by the launcher"),
    ]


def test_ends_of_a_log_without_ranks(stories):
    """Where no line can be given to a rank, the verdict still tells who ended."""
    rows = [(e.ranks, e.role) for e in tables.ends(stories.log(spans=()))]

    assert rows == [
        ("2", "first"),
        ("1", "victim of rank 2"),
        ("0, 3", "ended by the launcher"),
    ]


def test_attempts_compared(stories):
    """What is the same in both deaths is called so."""
    numbers, rows = attempts.compared(stories.run())
    alike = {row.name: row.alike for row in rows}

    assert numbers == [0, 1]
    assert alike["cause"] == alike["first rank"] == alike["signature"] == "same"
    assert alike["memory at its death"] == "same"
    assert alike["lived"] == ""


def test_another_death_is_different(stories):
    """Another signature and rank are different, and the reasons say so."""
    from dsup.report.html import phrases

    story = stories.run()
    other = story.told[0].verdict._replace(signature="x", first_ranks=(1,))
    story = story._replace(told=(story.told[0]._replace(verdict=other), story.told[1]))
    alike = {row.name: row.alike for row in attempts.compared(story)[1]}

    assert alike["signature"] == alike["first rank"] == "different"
    assert "Attempt 0 died of something else." in phrases.reasons(story)[-1]


def test_one_attempt_is_compared_with_nothing(stories):
    """One attempt alone has no comparison; of twelve the last four are compared."""
    assert attempts.compared(stories.unknown()) == ([], [])
    assert attempts.compared(stories.run(attempts=12))[0] == [8, 9, 10, 11]
