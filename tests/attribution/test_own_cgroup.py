"""Killed for memory in a cgroup of one's own: the count there is the proof."""

import pytest

from dsup.attribution.timeline import Counter

UNREADABLE = "permission denied"


def rose(story, rank, by=1):
    """Let the cgroup that a rank has for itself count OOM kills."""
    where = f"/sys/fs/cgroup/a.service/rank_{rank}/memory.events"
    return story.but(counters=(Counter("oom_kill", where, 0, by, (rank,)),))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"kernel_log": UNREADABLE}, id="the log is unreadable"),
        pytest.param({}, id="the log is silent"),
        pytest.param({"host_pids": False}, id="pids cannot be compared"),
    ],
)
def test_the_count_of_a_rank_s_own_cgroup_is_proof(incident, fields):
    """No log is needed, and no pid."""
    story = rose(incident(**fields).ended(2, -9).lost(0, 1, 3), 2)

    assert story.answer == ("own_cgroup_says_oom", "host_oom", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 was killed by the kernel: out of memory, by its cgroup's count."
    )
    assert "rank_2/memory.events" in story.verdict.evidence[0].text


def test_the_count_of_another_rank_s_cgroup_is_none(incident):
    """Its helper may have been killed; this rank was not."""
    story = rose(incident().ended(2, -9).lost(0, 1, 3), 1)

    assert story.verdict.cause == "killed"


def test_a_rank_that_ended_otherwise_was_not_killed(incident):
    """The count is one of its helpers; its own end says what became of it."""
    story = rose(incident(kernel_log=UNREADABLE), 2)
    story.raised(2, "ValueError", "no", 10.0).lost(0, 1, 3, at=10.1)

    assert story.answer[:2] == ("raised", "python_exception")


def test_a_count_that_the_log_explains_by_a_helper(incident):
    """A readable log that names another process for each kill clears the rank."""
    story = rose(incident().ended(2, -9).lost(0, 1, 3), 2)
    story.kernel("oom_memcg", 555, 9.0)

    assert story.verdict.rule != "own_cgroup_says_oom"
