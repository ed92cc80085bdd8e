"""What would change a verdict, and which rules were asked."""

import pytest

from dsup.attribution.judge import judge
from dsup.attribution.rules import RULES
from dsup.attribution.why import CHANGES_MAX
from dsup.facts.hardware import Gpu, GpuHealth


def changes(story):
    """Return all that would change a story's verdict, in one text."""
    return "; ".join(story.verdict.would_change)


def test_every_rule_is_listed_in_order(incident):
    """Those that came too late say what they would have said."""
    looked = incident().raised(1, "ValueError", "no").lost(0, 2, 3).verdict.looked
    spoke = [one.rule for one in looked if one.cause]

    assert [one.rule for one in looked] == [rule.__name__ for rule in RULES]
    assert spoke[0] == "raised"
    assert looked[[one.rule for one in looked].index("raised")].first_ranks == (1,)


def test_where_no_rule_speaks_all_are_silent(incident):
    """And the verdict is unknown."""
    verdict = incident().verdict

    assert verdict.rule == "unknown"
    assert {one.cause for one in verdict.looked} == {""}


def test_a_rule_that_breaks_after_another_has_spoken_costs_nothing(incident):
    """The answer is known by then, and stands."""

    def broken(timeline):
        raise ZeroDivisionError(timeline.attempt)

    story = incident().raised(1, "ValueError", "no")
    verdict = judge(story.facts, (*RULES, broken))

    assert verdict.rule == "raised"
    assert verdict.looked[-1] == ("broken", "", ())


def test_with_hundreds_of_ranks_no_rule_is_asked_in_vain(incident):
    """The judge has seconds; the rules up to the one that spoke are listed."""
    looked = incident(300).raised(1, "ValueError", "no").verdict.looked

    assert looked[-1].rule == "raised"
    assert len(looked) < len(RULES)


def test_what_the_kernel_proves_nothing_would_change(incident):
    """Its line names the process; NVML and the other ranks add nothing."""
    story = incident(nvml="no library").ended(2, -9).kernel("oom_memcg", 1002)

    assert story.stood(0, 1, 3).verdict.cause == "host_oom"
    assert story.verdict.would_change == ()


def test_a_kill_without_the_kernel_log_may_have_been_the_kernels(incident):
    """So may the counters that could not be read."""
    story = incident(kernel_log="permission denied", counters_read=False)
    said = changes(story.ended(2, -9).stood(0, 1, 3))

    assert "the kernel log is not complete (permission denied)" in said
    assert "a risen oom_kill" in said


def test_an_exception_of_a_ranks_own_is_no_matter_of_the_kernel(incident):
    """What the rank told itself, no kernel log would contradict."""
    story = incident(kernel_log="permission denied").raised(1, "ValueError", "no")

    assert "kernel" not in changes(story.stood(0, 2, 3))


def test_pids_of_a_namespace_cannot_be_matched(incident):
    """The kernel prints others."""
    assert "pid namespace" in changes(incident(host_pids=False).ended(2, -9))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"nvml": "no answer in 2 s"}, "no answer in 2 s", id="silent"),
        pytest.param(
            {"gpu_health": (GpuHealth(Gpu(6, "GPU-6", "0000:cb:00"), "unknown"),)},
            "the state of GPU 6 could not be read",
            id="one GPU unknown",
        ),
    ],
)
def test_a_lost_gpu_may_hide_behind_a_kill(incident, fields, said):
    """Where NVML did not say that it is well."""
    assert said in changes(incident(**fields).ended(2, -9).stood(0, 1, 3))


def test_ranks_without_a_trace_are_named(incident):
    """What became of them could name another first rank."""
    said = changes(incident(8).lost(0, 2).stood(1, 3))

    assert "ranks 4, 5, 6, 7 left no trace" in said


def test_ranks_whose_words_are_missing_are_named(incident):
    """Unseen output and silent ends are different things."""
    story = incident().ended(1, 1, 10.0).ended(2, 1, 10.3).said(1).stood(0, 3)
    said = changes(story)

    assert "the output of rank 2 was not seen" in said
    assert "the output of rank 1" not in said


def test_ends_too_close_to_be_told_apart_are_said(incident):
    """All of them are named first, and a finer time would name one."""
    story = incident().ended(1, -9, 10.0, late_s=0.5).ended(2, -9, 10.1, late_s=0.5)
    said = changes(story.stood(0, 3))

    assert "ranks 1, 2 ended too close together" in said


def test_all_ranks_alike_need_no_finer_clock(incident):
    """None of them is the first."""
    story = incident()
    for rank in range(4):
        story.raised(rank, "FileNotFoundError", "conf.yaml")

    assert "finer" not in changes(story)


def test_a_hang_without_steps_would_be_clearer_with_them(incident):
    """The runtime tells them."""
    assert "dsup_runtime" in changes(incident().timed_out(0, 1).stood(2, 3))


def test_sentences_are_printable_and_few(incident):
    """A reason that a machine gave may hold anything."""
    story = incident(kernel_log="\x1b[2J" * 500, nvml="\u202e" * 999).ended(2, -9)
    verdict = story.verdict

    assert 1 <= len(verdict.would_change) <= CHANGES_MAX
    assert all(one.isprintable() and len(one) <= 300 for one in verdict.would_change)


def test_an_obstacle_leaves_no_question(incident):
    """It was met by dsup itself."""
    assert incident(obstacle=("spawn_error", "no such file")).verdict.would_change == ()
