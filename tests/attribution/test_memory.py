"""Killed for memory, or killed by somebody: what proves it, and what does not."""

import pytest

from dsup.attribution.judge import judge

LOADER = "DataLoader worker (pid 4711) is killed by signal: Killed."
UNREADABLE = "permission denied"


def killed(incident, **fields):
    """Return an incident in which rank 2 of 4 died of SIGKILL."""
    return incident(**fields).ended(2, -9).lost(0, 1, 3)


def test_pid_and_sigkill_prove_an_oom_kill(incident):
    """The kernel's line with a rank's pid, and SIGKILL, is proof; it goes first."""
    story = killed(incident).kernel("oom_memcg", 1002, 9.9, limit_kb=400 << 20)
    verdict = story.verdict

    assert story.answer == ("kernel_killed_rank", "host_oom", (2,), "proven")
    assert verdict.evidence[0].source == "kernel"
    assert verdict.summary == (
        "Rank 2 was killed by the kernel: the cgroup reached its 400 GiB limit."
    )


def test_an_oom_kill_without_memory_left_on_the_node(incident):
    """Where no cgroup's limit was reached, the node is what was full."""
    verdict = killed(incident).kernel("oom_global", 1002).verdict

    assert "the node had no memory left" in verdict.summary


def test_of_two_oom_kills_the_kernel_s_first_counts(incident):
    """The kernel's sequence tells which rank it killed first, whatever ends first."""
    story = incident().ended(2, -9, 10.0).ended(1, -9, 10.0).lost(0, 3)
    story.kernel("oom_memcg", 1001, 9.7).kernel("oom_memcg", 1002, 9.8)

    assert story.answer == ("kernel_killed_rank", "host_oom", (1,), "proven")
    assert [v.how for v in story.verdict.victims if v.rank == 2] == [
        "killed as well, SIGKILL, +0.3 s"
    ]


def test_an_oom_kill_that_is_still_being_carried_out(incident):
    """A rank that the kernel has killed is named before it is reaped."""
    story = incident().lost(0, 1, 3).stood(2, at=12.0, status=None)
    story.kernel("oom_memcg", 1002, 9.9)

    assert story.answer == ("kernel_killed_rank", "host_oom", (2,), "proven")
    assert story.verdict.status == -9


def test_a_rank_killed_for_memory_and_reaped_late(incident):
    """The kernel's time counts: pages of a large rank may go after dsup's signal."""
    story = incident().lost(0, 1, 3).stood(2, at=12.0, status=-9)
    story.kernel("oom_memcg", 1002, 9.9)

    assert story.answer == ("kernel_killed_rank", "host_oom", (2,), "proven")


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(
            lambda i: killed(i).kernel("oom_memcg", 1002, -30.0),
            id="older than the attempt",
        ),
        pytest.param(
            lambda i: killed(i).kernel("oom_memcg", 555, 9.9), id="a pid of nobody"
        ),
        pytest.param(
            lambda i: killed(i).child(0, 77).kernel("oom_memcg", 77, 9.9),
            id="a helper of another rank",
        ),
    ],
)
def test_a_line_that_does_not_fit_is_no_proof(incident, story):
    """Other lines of the kernel's are looked at, said so, and prove nothing."""
    verdict = story(incident).verdict

    assert (verdict.cause, verdict.first_ranks) == ("killed", (2,))
    assert any("looked at" in evidence.text for evidence in verdict.evidence)


def test_an_oom_line_needs_sigkill(incident):
    """A rank that raised was not killed for memory, whatever a line says."""
    story = incident().raised(2, "ValueError", "no").lost(0, 1, 3)
    story.kernel("oom_memcg", 1002, 10.01)

    assert story.answer == ("raised", "python_exception", (2,), "proven")


def test_a_kill_after_dsup_s_signal_is_no_evidence(incident):
    """A rank that dies of memory while dsup ends it did not begin it."""
    story = incident().raised(1, "ValueError", "no").stood(0, 2, 3, at=10.2, status=-9)
    story.kernel("oom_memcg", 1002, 11.0)

    assert story.answer == ("raised", "python_exception", (1,), "proven")


def test_a_killed_dataloader_worker(incident):
    """The kernel's line with the pid of a worker makes it the cause of its rank."""
    story = incident().child(1, 4711).kernel("oom_memcg", 4711, 9.8)
    story.raised(1, "RuntimeError", LOADER).lost(0, 2, 3)

    assert story.answer == (
        "kernel_killed_helper",
        "dataloader_worker",
        (1,),
        "proven",
    )
    assert story.verdict.summary == (
        "Rank 1 lost a DataLoader worker: the kernel killed it, out of memory."
    )


def test_a_killed_worker_that_nobody_saw(incident):
    """Born and dead between two looks: its pid stands in what its rank tells."""
    inner = (("RuntimeError", LOADER),)
    story = incident().kernel("oom_memcg", 4711, 9.8)
    story.raised(1, "RuntimeError", "worker exited unexpectedly", causes=inner)
    story.lost(0, 2, 3)

    assert story.answer == (
        "kernel_killed_helper",
        "dataloader_worker",
        (1,),
        "proven",
    )


def test_a_process_that_was_seen_is_not_another_rank_s_by_its_word(incident):
    """What a rank tells of a pid does not take it from the rank that it was below."""
    story = incident().child(0, 4711).kernel("oom_memcg", 4711, 9.8)
    story.raised(1, "RuntimeError", LOADER).lost(0, 2, 3)

    assert story.answer[:3] == ("raised", "dataloader_worker", (1,))


def test_a_worker_told_of_is_a_process_of_the_run(incident):
    """A line about it that explains nothing is not called a stranger's."""
    story = incident().kernel("oom_memcg", 4711, 9.8)
    story.raised(1, "RuntimeError", LOADER).raised(2, "ValueError", "no", 9.0)
    story.lost(0, 3)
    (line,) = [e.text for e in story.verdict.evidence if e.source == "kernel"]

    assert story.verdict.first_ranks == (2,)
    assert line.startswith("looked at, not what came first: ")


def test_a_killed_helper(incident):
    """Another helper that was killed is named with its name and pid."""
    story = incident().child(1, 4711).kernel("oom_memcg", 4711, 9.8, comm="ffmpeg")
    story.raised(1, "subprocess.CalledProcessError", "died with SIGKILL").lost(0, 2, 3)

    assert story.answer == ("kernel_killed_helper", "host_oom", (1,), "proven")
    assert "(ffmpeg, pid 4711)" in story.verdict.summary


def test_a_helper_killed_long_before_is_no_cause(incident):
    """A rank that ran on for more than a minute did not fail of its helper's end."""
    story = incident().child(1, 4711).kernel("oom_memcg", 4711, 9.8)
    story.raised(1, "ValueError", "no", 80.0).lost(0, 2, 3, at=80.1)

    assert story.answer == ("raised", "python_exception", (1,), "proven")


def test_a_helper_of_a_rank_that_waits_for_it(incident):
    """A rank that never ended, because its killed helper never answers, is likely."""
    story = incident().child(1, 4711).kernel("oom_memcg", 4711, 9.8)
    story.timed_out(0, 2, 3).stood(1, at=17.0)

    assert story.answer == ("kernel_killed_helper", "host_oom", (1,), "likely")


@pytest.mark.parametrize(
    ("log", "certainty"),
    [
        pytest.param(UNREADABLE, "likely", id="the log is unreadable"),
        pytest.param("", "likely", id="the log is silent"),
    ],
)
def test_the_cgroup_s_counter_tells_of_a_kill(incident, log, certainty):
    """A risen oom_kill of the rank's cgroup and SIGKILL make memory likely."""
    story = killed(incident, kernel_log=log).rose("oom_kill", 2)

    assert story.answer == ("counters_say_oom", "host_oom", (2,), certainty)
    assert "likely killed by the kernel: oom_kill rose" in story.verdict.summary


@pytest.mark.parametrize(
    ("log", "certainty"),
    [
        pytest.param(UNREADABLE, "likely", id="the log is unreadable"),
        pytest.param("", "guess", id="the log is silent"),
    ],
)
def test_the_node_s_counter_is_weaker(incident, log, certainty):
    """A kill somewhere on the node may be anybody's."""
    story = killed(incident, kernel_log=log).rose("vmstat_oom_kill")

    assert story.answer == ("counters_say_oom", "host_oom", (2,), certainty)


def test_a_counter_that_other_processes_explain(incident):
    """A rise that the log accounts for by another process is not the rank's."""
    story = killed(incident).rose("oom_kill", 2).kernel("oom_memcg", 555, 9.0)

    assert story.answer[:3] == ("killed_from_outside", "killed", (2,))


def test_the_counter_of_another_rank_s_cgroup(incident):
    """A cgroup in which the killed rank does not live says nothing about it."""
    story = killed(incident).rose("oom_kill", 0)

    assert story.verdict.cause == "killed"


def test_in_a_pid_namespace_cgroup_and_status_must_do(incident):
    """Where pids cannot be compared, a line about the rank's cgroup is likely."""
    story = killed(incident, host_pids=False, cgroups={2: "/job/rank2"})
    story.kernel("oom_memcg", 1002, 9.9, cgroup="/kubepods/pod1/job/rank2")

    assert story.answer == ("kernel_killed_unseen_pid", "host_oom", (2,), "likely")


@pytest.mark.parametrize(
    ("fields", "certainty", "words"),
    [
        pytest.param({}, "proven", "not the OOM killer", id="all was looked at"),
        pytest.param(
            {"kernel_log": UNREADABLE},
            "likely",
            "the kernel log is unreadable",
            id="no kernel log",
        ),
        pytest.param(
            {"kernel_log": UNREADABLE, "counters_read": False},
            "likely",
            "could not be looked at",
            id="neither log nor counters",
        ),
        pytest.param({"host_pids": False}, "likely", "likely", id="a pid namespace"),
    ],
)
def test_sigkill_without_a_sign_of_memory_is_somebody_s(
    incident, fields, certainty, words
):
    """Without a sign of it nothing is called out of memory; doubts are said."""
    story = killed(incident, **fields)

    assert story.answer == ("killed_from_outside", "killed", (2,), certainty)
    assert words in story.verdict.summary
    assert "memory" not in story.verdict.summary


def test_ranks_killed_at_once_are_all_named(incident):
    """Ends that the agent saw in one look are equal."""
    story = incident().ended(1, -9).ended(3, -9).lost(0, 2)

    assert story.verdict.first_ranks == (1, 3)
    assert story.verdict.summary.startswith("Ranks 1 and 3 were killed by SIGKILL")


def test_a_killed_rank_goes_before_a_silent_one_that_ended_earlier(incident):
    """A death that nobody else can cause explains an exit code without words."""
    story = incident().ended(0, 1, 9.9).ended(2, -9, 10.3).lost(1, 3)

    assert judge(story.facts).first_ranks == (2,)
