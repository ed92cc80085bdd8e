"""Deaths by other signals, and exit codes."""

import pytest

SEGV, BUS, ILL, FPE, ABRT, TERM, INT, HUP = 11, 7, 4, 8, 6, 15, 2, 1
MIB = 1 << 20


def test_a_segfault_with_the_kernel_s_line(incident):
    """The line is joined by thread id, and names library and address."""
    story = incident().child(0, 5005).ended(0, -SEGV).lost(1, 2, 3)
    story.kernel("segfault", 5005, 9.9, lib="libnccl.so.2", address=0x18, signum=SEGV)

    assert story.answer == ("crashed", "segfault", (0,), "proven")
    assert story.verdict.summary == (
        "Rank 0 crashed with a segmentation fault (SIGSEGV) in libnccl.so.2 at "
        "address 0x18."
    )
    assert story.verdict.evidence[0].source == "kernel"


def test_a_segfault_with_faulthandler_s_report(incident):
    """With faulthandler there is no kernel line; its report is the proof."""
    frame = "/srv/train.py:66 in main"
    story = incident().ended(0, -SEGV).lost(1, 2, 3)
    story.said(0, crash="Segmentation fault", frame=frame)

    assert story.answer == ("crashed", "segfault", (0,), "proven")
    assert "train.py:66 in main" in story.verdict.summary


@pytest.mark.parametrize(
    ("signum", "doubted"),
    [(SEGV, True), (ILL, True), (FPE, False), (BUS, False)],
    ids=["SIGSEGV", "SIGILL", "SIGFPE has a line at times", "SIGBUS has none"],
)
def test_a_crash_of_which_the_kernel_says_nothing_may_have_been_sent(
    incident, signum, doubted
):
    """A log that was read has a line of every fault that nobody handles."""
    story = incident().ended(0, -signum).lost(1, 2, 3).said(0, "epoch 3")

    assert story.verdict.certainty == "likely"
    assert ("or somebody sent it SIG" in story.verdict.summary) == doubted
    assert (story.verdict.advice.action == "find_sender") == doubted


@pytest.mark.parametrize(
    "why",
    ["the log was not read", "other pids", "a line of an unseen thread", "output"],
)
def test_where_the_kernel_s_silence_says_nothing_nobody_is_suspected(incident, why):
    """What was not looked at, or not seen, accuses nobody of having sent a signal."""
    story = incident().ended(0, -SEGV).lost(1, 2, 3)
    if why != "output":
        story.said(0, "epoch 3")
    if why == "the log was not read":
        story.but(kernel_log="no permission")
    if why == "other pids":
        story.but(host_pids=False)
    if why == "a line of an unseen thread":
        story.kernel("segfault", 77, 9.9)

    assert story.answer == ("crashed", "segfault", (0,), "likely")
    assert "somebody" not in story.verdict.summary


def test_a_segfault_without_either_is_likely(incident):
    """The status alone does not tell whether somebody sent the signal."""
    story = incident().ended(0, -SEGV).lost(1, 2, 3)

    assert story.answer == ("crashed", "segfault", (0,), "likely")


def test_a_line_about_another_rank_s_thread_proves_nothing(incident):
    """A segfault line counts only for the rank whose thread it names."""
    story = incident().child(3, 5005).ended(0, -SEGV).lost(1, 2, 3)
    story.kernel("segfault", 5005, 9.9, lib="libnccl.so.2")

    assert story.answer == ("crashed", "segfault", (0,), "likely")
    assert "libnccl" not in story.verdict.summary


def test_a_bus_error_with_a_full_shm(incident):
    """A full /dev/shm explains a bus error."""
    story = incident().ended(3, -BUS).lost(0, 1, 2)
    story.space("/dev/shm", 0, 64 * MIB)  # noqa: S108 (a name)

    assert story.answer == ("crashed", "sigbus", (3,), "proven")
    assert story.verdict.summary == (
        "Rank 3 got a bus error (SIGBUS): /dev/shm was full (64 MiB of 64 MiB)."
    )
    assert [e.text for e in story.verdict.evidence if e.source == "counters"] == [
        "/dev/shm is full: 0 MiB left (/dev/shm)"  # noqa: S108 (a name)
    ]


@pytest.mark.parametrize(
    ("signum", "cause", "words"),
    [
        pytest.param(SEGV, "segfault", "SIGSEGV", id="SIGSEGV"),
        pytest.param(BUS, "sigbus", "SIGBUS", id="SIGBUS"),
        pytest.param(ILL, "abort", "illegal instruction (SIGILL)", id="SIGILL"),
        pytest.param(FPE, "abort", "arithmetic error (SIGFPE)", id="SIGFPE"),
    ],
)
def test_crashes(incident, signum, cause, words):
    """Each signal that a process brings upon itself has its cause and its words."""
    verdict = incident().ended(0, -signum).lost(1, 2, 3).verdict

    assert (verdict.cause, verdict.status) == (cause, -signum)
    assert words in verdict.summary


def test_a_crash_while_dsup_ends_the_rank_is_no_evidence(incident):
    """Ranks often crash in their exit handlers; dsup's signal came before."""
    story = incident().raised(1, "ValueError", "no").stood(0, 2, 3, status=-SEGV)

    assert story.answer == ("raised", "python_exception", (1,), "proven")


def test_a_crash_that_follows_an_exception_is_not_the_cause(incident):
    """An exception that was told goes before the crash of the interpreter's end."""
    story = incident().noted(1, "ValueError", "no", 9.9).ended(1, -SEGV).lost(0, 2, 3)

    assert story.answer == ("raised", "python_exception", (1,), "proven")


def test_a_crash_that_follows_a_communication_error_is_a_victim_s(incident):
    """A rank that loses its peers and crashes at its end did not begin it."""
    story = incident().ended(2, 0).lost(0, 1)
    story.noted(3, "RuntimeError", "Connection closed by peer", 10.1)
    story.ended(3, -SEGV, 10.2)

    assert story.answer == ("early_exit", "early_exit", (2,), "proven")


@pytest.mark.parametrize(
    ("lines", "cause", "words"),
    [
        pytest.param(
            ("terminate called", "  what():  index out of range"),
            "abort",
            "what(): index out of range",
            id="a C++ exception",
        ),
        pytest.param(
            ("double free or corruption (!prev)",), "abort", "double free", id="glibc"
        ),
        pytest.param(
            ("terminate called", "what(): CUDA error: unspecified launch failure"),
            "cuda_error",
            "unspecified launch failure",
            id="CUDA in the words of a watchdog",
        ),
    ],
)
def test_an_abort_says_why(incident, lines, cause, words):
    """The line in which the library gave up is the reason."""
    story = incident().ended(0, -ABRT).said(0, *lines).lost(1, 2, 3)

    assert story.answer == ("aborted", cause, (0,), "proven")
    assert words in story.verdict.summary


@pytest.mark.parametrize("more", [(), ("Fatal Python error: Aborted",)])
def test_a_thread_that_outlived_its_process_group(incident, more):
    """Of a rank that was done only the exit code is lost: that is said, and a way."""
    words = "terminate called without an active exception"
    story = incident().ended(1, -ABRT).said(1, words, *more).ended(0, 0)
    advice = story.verdict.advice

    assert (story.verdict.cause, story.verdict.first_ranks) == ("abort", (1,))
    assert words in story.verdict.summary
    assert "destroy the process group" in advice.text


def test_an_abort_at_a_known_line(incident):
    """Faulthandler's report names the line of an abort without words."""
    story = incident().ended(0, -ABRT).lost(1, 2, 3)
    story.said(0, crash="Aborted", frame="/srv/w.py:61 in main")

    assert story.verdict.summary == "Rank 0 aborted (SIGABRT) at w.py:61 in main."


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            (
                "[Rank 0] Watchdog caught collective operation timeout",
                "terminate called after throwing an instance of 'c10::Error'",
            ),
            id="a watchdog's time-out",
        ),
        pytest.param(("terminate called without an active exception",), id="cast off"),
    ],
)
def test_an_abort_of_a_victim(incident, lines):
    """An abort after a time-out, or of a rank that was done, is not the cause."""
    story = incident().ended(0, -ABRT, 9.0).said(0, *lines)
    story.ended(2, -9, 10.0).lost(1, 3)

    assert story.verdict.first_ranks == (2,)
    assert [v.rank for v in story.verdict.victims] == [0, 1, 3]


@pytest.mark.parametrize(
    ("signum", "name", "certainty"),
    [
        pytest.param(TERM, "SIGTERM", "proven", id="SIGTERM"),
        pytest.param(INT, "SIGINT", "likely", id="SIGINT"),
        pytest.param(HUP, "SIGHUP", "proven", id="SIGHUP"),
    ],
)
def test_a_signal_that_dsup_did_not_send(incident, signum, name, certainty):
    """Somebody killed a rank that ends of a signal before dsup sent one; it may itself.

    SIGINT is also how Python ends after a KeyboardInterrupt of the script's own.
    """
    story = incident().ended(2, -signum).lost(0, 1, 3)

    assert story.answer == ("terminated", "killed", (2,), certainty)
    assert f"killed by {name} of unknown sender" in story.verdict.summary
    assert ("KeyboardInterrupt" in story.verdict.summary) == (signum == INT)


@pytest.mark.parametrize(
    ("signum", "words"),
    [
        pytest.param(24, "SIGXCPU, which the kernel sends", id="processor time"),
        pytest.param(25, "the size of a file (ulimit -f)", id="the size of a file"),
    ],
)
def test_a_signal_that_the_kernel_sends_at_a_limit(incident, signum, words):
    """Nobody is to be looked for: the limit is to be raised."""
    story = incident().ended(2, -signum).lost(0, 1, 3)

    assert story.answer == ("limit_reached", "killed", (2,), "proven")
    assert words in story.verdict.summary
    assert story.verdict.advice.action == "raise_limit"


def test_an_interrupt_that_python_turned_into_an_exception(incident):
    """KeyboardInterrupt is likely the signal's doing, not the script's."""
    story = incident().noted(2, "KeyboardInterrupt").ended(2, -INT).lost(0, 1, 3)

    assert story.answer == ("terminated", "killed", (2,), "likely")


def test_all_ranks_terminated_from_outside(incident):
    """Where all were ended alike, all are named."""
    story = incident()
    for rank in range(4):
        story.ended(rank, -TERM)

    assert story.verdict.summary.startswith("All 4 ranks were killed by SIGTERM")


@pytest.mark.parametrize(
    ("status", "lines", "cause", "words"),
    [
        pytest.param(7, (), "python_exception", "exit code 7 and said", id="os._exit"),
        pytest.param(
            3,
            ("no data",),
            "python_exception",
            "exit code 3; its last line: no data",
            id="sys.exit, with a last line",
        ),
        pytest.param(
            2,
            ("usage: train.py", "train.py: error: unrecognized arguments: --x"),
            "config_error",
            "exit code 2",
            id="argparse",
        ),
        pytest.param(137, (), "killed", "SIGKILL", id="a shell's 128+9"),
        pytest.param(139, (), "segfault", "SIGSEGV", id="a shell's 128+11"),
        pytest.param(134, (), "abort", "SIGABRT", id="a shell's 128+6"),
    ],
)
def test_an_exit_code_without_an_exception(incident, status, lines, cause, words):
    """A code of a rank's own, while the others lost it, is likely the cause."""
    story = incident().ended(3, status).said(3, *lines).lost(0, 1, 2)

    assert story.answer == ("ended_without_words", cause, (3,), "likely")
    assert words in story.verdict.summary
    assert story.verdict.status == status


def test_a_code_other_than_1_goes_first_where_time_does_not_tell(incident):
    """1 is what a rank gives that only lost its peers."""
    story = incident().ended(0, 1).ended(1, 1).ended(2, 5).stood(3)

    assert story.verdict.first_ranks == (2,)


def test_a_silent_exit_1_that_nobody_died_of_is_a_guess(incident):
    """One silent rank among ranks that dsup ended says little."""
    story = incident().ended(2, 1).stood(0, 1, 3)

    assert story.answer == (
        "ended_without_words",
        "python_exception",
        (2,),
        "guess",
    )


def test_a_crash_begins_before_its_end_is_seen(incident):
    """Stacks are printed and a core is written before: a tenth of a second."""
    story = incident().raised(0, "ValueError", "peer-gone", 9.95).ended(0, 1, 10.1)
    story.ended(3, -11, 10.0)

    assert story.verdict.first_ranks == (3,)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        pytest.param(
            True, "Rank 2 ended with exit code 7 and said nothing.", id="seen"
        ),
        pytest.param(
            False,
            "Rank 2 ended with exit code 7; its output was not seen.",
            id="elsewhere",
        ),
    ],
)
def test_a_rank_whose_output_went_elsewhere_is_not_called_silent(incident, seen, said):
    """With ``--stdio inherit`` a rank writes where dsup does not read."""
    story = incident().ended(2, 7).lost(0, 1, 3)
    if seen:
        story.said(2)

    assert story.verdict.summary == said
