"""Ways in which one of four ranks is made to fail, as they look from outside."""

import pytest

from dsup.core.verdict import SUMMARY_MAX_CHARS


def exception(incident):
    """Rank 1 raises, the others lose it."""
    text = "rank 1: bad batch 17"
    return incident().raised(1, "ValueError", text).lost(0, 2, 3)


def sigkill(incident):
    """Rank 2 dies of SIGKILL, and the kernel knows nothing of it."""
    return incident().ended(2, -9).lost(0, 1).stood(3, at=10.0)


def segfault(incident):
    """Rank 2 crashes; faulthandler reports it."""
    frame = "/srv/train.py:66 in main"
    crash = "Segmentation fault"
    story = incident().ended(2, -11).said(2, crash=crash, frame=frame)
    return story.lost(0).stood(1, 3, at=10.2)


def abort(incident):
    """Rank 0 aborts; faulthandler reports it."""
    story = incident().ended(0, -6).said(0, "  <no Python frame>", crash="Aborted")
    return story.lost(1, 2, 3)


def oom(incident):
    """The kernel kills rank 1 for memory; its pages take 0.3 s to go."""
    story = incident().lost(0, 2, 3, at=10.01).ended(1, -9, 10.3, dying=True)
    return story.kernel("oom_memcg", 1001, 9.99, limit_kb=614400).rose("oom_kill", 1)


def early_exit(incident):
    """Rank 2 ends with 0, the others still need it."""
    return incident().ended(2, 0).lost(0, 1, 3)


def exit_3_late(incident):
    """Rank 0 ends with 3 after its victims were seen to wait."""
    return incident().ended(0, 3, 10.7).lost(1, 2, 3, at=10.72)


def thread(incident):
    """A thread of rank 1 raises, its main thread waits, the others time out."""
    text = "prefetch thread of rank 1 died"
    story = incident().noted(1, "RuntimeError", text, thread="Thread-1 (work)")
    return story.timed_out(0, 2, 3, at=35.0).stood(1, at=37.0)


def os_exit_7(incident):
    """Rank 3 leaves by os._exit(7)."""
    return incident().ended(3, 7).lost(0, 1, 2)


def dataloader(incident):
    """Somebody kills a DataLoader worker of rank 1."""
    text = "DataLoader worker (pid(s) 4711) exited unexpectedly"
    inner = (
        "RuntimeError",
        "DataLoader worker (pid 4711) is killed by signal: Killed.",
    )
    story = incident().child(1, 4711).raised(1, "RuntimeError", text, causes=(inner,))
    return story.lost(0, 2, 3)


def two_in_1_ms(incident):
    """Rank 3 raises, rank 1 raises another exception a millisecond later."""
    story = incident().noted(3, "ValueError", "rank 3 first", 10.0)
    story.noted(1, "KeyError", "'rank 1 a millisecond later'", 10.001)
    return story.ended(1, 1, 10.02).ended(3, 1, 10.021).lost(0, 2)


def stuck(incident):
    """Rank 2 sleeps before the collective, the others time out."""
    return incident().timed_out(0, 1, 3).stood(2, at=17.0)


def sigstop(incident):
    """Rank 2 is stopped, the others time out."""
    return incident().timed_out(0, 1, 3).stood(2, at=17.0, state="T", status=-9)


def sigterm(incident):
    """Somebody else terminates rank 2."""
    return incident().ended(2, -15).lost(0, 1, 3)


def import_error(incident):
    """Rank 1 lacks a module while the others wait for it to join."""
    text = "No module named 'module_that_is_not_there'"
    return incident().raised(1, "ModuleNotFoundError", text).stood(0, 2, 3, at=10.2)


def slow_atexit(incident):
    """Rank 1 raises and needs 2 s to exit; the others fail, dsup has to end it."""
    story = incident().noted(1, "ValueError", "rank 1: loss is NaN", 10.0)
    return story.lost(0, 2, 3, at=9.999).stood(1, at=10.3)


def memory_error(incident):
    """Rank 3 cannot allocate."""
    return incident().raised(3, "MemoryError", "cannot allocate 4 GiB").lost(0, 1, 2)


@pytest.mark.parametrize(
    ("story", "rank", "words"),
    [
        pytest.param(exception, 1, "ValueError: rank 1: bad batch 17", id="exception"),
        pytest.param(sigkill, 2, "SIGKILL", id="SIGKILL"),
        pytest.param(segfault, 2, "SIGSEGV", id="segmentation fault"),
        pytest.param(abort, 0, "SIGABRT", id="abort"),
        pytest.param(oom, 1, "host_oom", id="kernel OOM kill"),
        pytest.param(early_exit, 2, "exit 0", id="early exit 0"),
        pytest.param(exit_3_late, 0, "exit code 3", id="exit 3"),
        pytest.param(thread, 1, "prefetch thread", id="exception in a thread"),
        pytest.param(os_exit_7, 3, "exit code 7", id="os._exit(7)"),
        pytest.param(dataloader, 1, "DataLoader worker", id="DataLoader worker killed"),
        pytest.param(two_in_1_ms, 3, "rank 3 first", id="two within 1 ms"),
        pytest.param(stuck, 2, "did not enter", id="stuck"),
        pytest.param(sigstop, 2, "SIGSTOP", id="SIGSTOP"),
        pytest.param(sigterm, 2, "SIGTERM", id="SIGTERM from outside"),
        pytest.param(import_error, 1, "module_that_is_not_there", id="import error"),
        pytest.param(slow_atexit, 1, "loss is NaN", id="slow atexit"),
        pytest.param(memory_error, 3, "MemoryError", id="MemoryError"),
    ],
)
def test_the_rank_and_the_reason(incident, story, rank, words):
    """One rank is named, and its reason can be read from cause and summary."""
    verdict = story(incident).verdict

    assert verdict.first_ranks == (rank,)
    assert words in f"{verdict.cause}; {verdict.summary}"
    assert verdict.certainty in {"proven", "likely"}
    assert verdict.summary.endswith(".")
    assert len(verdict.summary) <= SUMMARY_MAX_CHARS
