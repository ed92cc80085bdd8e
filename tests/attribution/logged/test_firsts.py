"""The first own sign: exceptions, signals, and words that are no traceback."""

import pytest

from dsup.facts.logs.line import Place

OOM = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of …"
FREE = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79 GiB; 9.75 MiB free)"


def test_a_gpu_fault_goes_before_what_it_looks_like_above(log):
    """An uncorrectable ECC error is the cause of the exception that stands above."""
    story = log().raised(2, "torch.AcceleratorError", "CUDA error: unknown error")
    story.watchdog(2, "CUDA error: uncorrectable ECC error encountered")

    assert story.answer == ("hardware", "gpu_hardware", (2,))


def test_an_xid_is_of_the_rank_that_met_a_cuda_error(log):
    """A kernel's line in the log bears no rank."""
    text = "NVRM: Xid (PCI:0000:cb:00): 79, GPU has fallen off the bus."
    story = log().watchdog(3, "CUDA error: unknown error").said(None, "ecc", text)

    assert story.answer == ("hardware", "gpu_hardware", (3,))


def test_an_xid_that_a_program_brings_about(log):
    """Xid 31 is a fault of an address, and no fault of the GPU."""
    text = "NVRM: Xid (PCI:0000:cb:00): 31, pid=77, name=python, MMU Fault"

    assert log().said(None, "ecc", text).answer == ("said", "cuda_error", ())


def test_a_loss_that_is_no_number_ends_nothing(log):
    """Training went on with it; what raised later is the cause."""
    story = log().said(0, "nan", "step 70: loss is nan").raised(3, "KeyError", "'mask'")

    assert story.answer == ("raised", "python_exception", (3,))
    waits = log(world_size=2).said(0, "nan", "loss is nan").timed_out(1)
    assert waits.verdict.cause == "hang"


def test_a_line_about_shared_memory_that_tells_of_no_failure(log):
    """The size of /dev/shm is printed by many scripts."""
    story = log().said(0, "shm", "using /dev/shm with 64 GiB")

    assert story.answer == ("unknown", "unknown", ())


def test_a_port_of_the_network(log):
    """All processes of a node speak of its port: the node is first, and no rank."""
    story = log()
    for pid in (11, 12, 13):
        story.said(Place(pid=pid, node="n07"), "nic", "Got async event : port error")
    story.said(Place(pid=99, node="n09"), "completion", "Got completion from peer n07")

    assert story.answer == ("network_device", "nccl_network", ())
    assert "n07" in story.verdict.summary


def test_an_event_that_is_no_fault(log):
    """A subnet manager that was started again lets all ports register again."""
    story = log().said(0, "nic", "Got async event : client reregistration")

    assert story.answer == ("unknown", "unknown", ())


def test_a_port_that_came_back(log):
    """Steps went on after the port's error: what failed later is the cause."""
    story = log().said(Place(node="n07"), "nic", "Got async event : port error")
    story.moved(0, 70).raised(3, "KeyError", "'mask'")

    assert story.answer == ("raised", "python_exception", (3,))


def test_a_traceback_without_a_rank_is_of_the_only_rank_that_ended(log):
    """The launcher tells of one failure: the traceback is likely its."""
    story = log(world_size=4).raised(None, "KeyError", "'mask'").lost(0, 1, 3)
    story.ended(2, 1, "agent")

    assert story.answer == ("raised", "python_exception", (2,))
    assert story.verdict.certainty == "likely"


def test_a_traceback_without_a_rank_and_nothing_else(log):
    """Where nothing tells whose it is, nobody is named."""
    story = log().raised(None, "KeyError", "'mask'")

    assert story.answer == ("raised", "python_exception", ())
    assert story.verdict.summary == (
        "A rank that the log does not name raised KeyError: 'mask'."
    )
    assert any("bears its rank" in text for text in story.verdict.would_change)


def test_a_gpu_s_number_is_a_rank_where_each_process_sees_all(log):
    """GPU 3 is the local rank; GPU 0 alone is what every pod calls its only one."""
    story = log().raised(None, "torch.OutOfMemoryError", OOM)

    assert story.answer == ("raised", "cuda_oom", (3,))
    assert log().raised(None, "torch.OutOfMemoryError", FREE).answer[2] == ()


def test_the_words_of_an_oom_are_short(log):
    """What was asked for and what was free is all that matters."""
    story = log().raised(1, "torch.cuda.OutOfMemoryError", FREE)

    assert story.verdict.summary == (
        "Rank 1 ran out of GPU memory: it asked for 20.00 MiB more, 9.75 MiB were free."
    )


def test_a_rank_in_the_message(log):
    """A message that begins with its speaker's rank tells whose it is."""
    story = log().raised(None, "AssertionError", "Rank 21: found NaN in a gradient")

    assert story.answer == ("raised", "numeric_divergence", (21,))


def test_a_segfault_and_its_last_words(log):
    """Glibc's line has no rank, the launcher's has: they are one process."""
    story = log().said(None, "glibc", "double free or corruption (!prev)")
    story.ended(5, -6, "agent")

    assert story.answer == ("said", "abort", (5,))


def test_an_abort_that_follows_a_time_out_is_a_victim_s(log):
    """The watchdog aborts its process after it gave up: that is no cause."""
    story = log(world_size=3).timed_out(1, 2).ended(1, -6).ended(2, -6)

    assert story.answer == ("silent", "hang", (0,))


def test_an_abort_of_another_rank_is_its_own(log):
    """Time-outs of others do not explain the abort of a rank that said nothing."""
    story = log(world_size=3).ended(0, -6, "agent").timed_out(1, 2)

    assert story.answer == ("crashed", "abort", (0,))


@pytest.mark.parametrize(
    ("status", "cause"), [(-11, "segfault"), (139, "segfault"), (-7, "sigbus")]
)
def test_a_crash(log, status, cause):
    """A signal that nobody else's end sends; containers tell it as 128 plus n."""
    story = log().lost(0, 2).ended(1, status, "agent")

    assert story.answer == ("crashed", cause, (1,))


def test_a_device_error_in_a_watchdog_s_line(log):
    """What follows the words "with exception" counts, never those before."""
    text = "watchdog thread terminated with exception: CUDA error: unspecified launch"
    story = log().watchdog(1, text)

    assert story.answer == ("said", "cuda_error", (1,))
    assert story.verdict.summary == (
        "Rank 1 met a CUDA error: CUDA error: unspecified launch."
    )


def test_a_kernel_s_assertion(log):
    """The line of a CUDA kernel's assertion has no word of CUDA in it."""
    text = "Indexing.cu:12: block: [1,0,0] Assertion `srcIndex < srcSelectDimSize`"
    story = log().said(4, "device", text)

    assert story.answer == ("said", "device_assert", (4,))


def test_more_processes_than_gpus(log):
    """A device ordinal that does not exist is a wrong set-up, no fault of a GPU."""
    story = log().raised(5, "RuntimeError", "CUDA error: invalid device ordinal")

    assert story.answer[1] == "config_error"


def test_a_full_shared_memory_behind_a_system_error(log):
    """NCCL's "unhandled system error" hides what its last line tells."""
    text = "unhandled system error. Error while creating shared memory segment"
    story = log().raised(0, "torch.distributed.DistBackendError", text)

    assert story.answer == ("raised", "disk_full", (0,))


def test_frames_alone_tell_an_import(log):
    """The log was cut, but one module's code was reached from another module's."""
    frames = ("train.py:3 in <module>", "models/__init__.py:7 in <module>")
    story = log().raised(0, "", frames=frames)

    assert story.answer == ("raised", "import_error", (0,))
    assert story.verdict.would_change[0].startswith("the end of the traceback")


def test_frames_alone_are_nothing_among_victims(log):
    """A cut traceback may be of a rank that waited for another one."""
    story = log().raised(0, "", frames=("train.py:3 in main",)).lost(1)

    assert story.answer == ("only_victims", "unknown", ())


def test_a_loader_worker_that_was_ended_with_its_rank(log):
    """The launcher's SIGTERM reaches DataLoader workers too: no cause."""
    text = "DataLoader worker (pid 7) is killed by signal: Terminated."
    story = log().raised(0, "RuntimeError", text).raised(1, "ValueError", "bad record")

    assert story.answer == ("raised", "python_exception", (1,))


def test_the_last_words_of_the_run_time_are_no_cause(log):
    """``terminate called`` is printed above the reason of it."""
    story = log().said(None, "glibc", "terminate called after throwing 'c10::Error'")
    story.said(None, "oom_device", "what(): CUDA error: out of memory")

    assert story.answer == ("said", "cuda_oom", ())


def test_refused_arguments(log):
    """Argparse ends all ranks alike: none is named."""
    story = log().said(0, "refusal", "train.py: error: unrecognized arguments: --x")

    assert story.answer == ("said", "config_error", ())


def test_a_traceback_that_was_cut_while_another_error_was_handled(log):
    """What was being handled is whole, and tells the cause."""
    text = "CUDA out of memory. Tried to allocate 2.00 GiB."
    story = log().raised(1, "", causes=(("torch.OutOfMemoryError", text),)).lost(0)

    assert story.answer == ("raised", "cuda_oom", (1,))
    assert story.verdict.summary == (
        "Rank 1 ran out of GPU memory: it asked for 2.00 GiB more."
    )


def test_a_model_that_is_not_the_same_on_all_ranks(log):
    """The rank that says so only reports, and the one that it names may be right."""
    text = "DDP expects same model across all ranks, but Rank 1 has 9 params, while …"
    story = log().raised(1, "RuntimeError", text)

    assert story.answer == ("mismatched", "collective_mismatch", ())


def test_a_message_about_nan_is_no_proof(log):
    """Anybody may raise these words; a number that was seen is not in them."""
    verdict = log().raised(1, "ValueError", "loss is nan").verdict

    assert (verdict.cause, verdict.certainty) == ("numeric_divergence", "likely")


def test_one_failure_far_behind_another_is_not_of_the_same_second(log):
    """Lines without stamps: minutes lie between the stamped ones before them."""
    story = log(clock=((0, 1e9), (2, 1e9 + 300)))
    story.raised(3, "ValueError", "no labels").raised(5, "ValueError", "no labels")

    assert story.answer == ("raised", "python_exception", (3,))


def test_one_failure_thousands_of_lines_behind_another_came_later(log):
    """Without any stamp, what was printed in between tells."""
    story = log().raised(3, "ValueError", "no labels", number=10)
    story.raised(5, "ValueError", "no labels", number=50_000)

    assert story.answer == ("raised", "python_exception", (3,))


def test_many_ranks_that_fail_alike_fill_thousands_of_lines(log):
    """Each stands close behind the one before: they are one failure."""
    story = log()
    for rank in range(4):
        story.raised(rank, "ImportError", "no module", number=6000 * rank)

    assert story.answer == ("all_alike", "import_error", (0, 1, 2, 3))


def test_a_time_of_the_lines_around(log):
    """Where no cited line has one, and stamped ones stand close around it."""
    story = log(clock=((0, 1e9), (2, 1e9 + 5))).raised(3, "ValueError", "no labels")
    alone = log(clock=((0, 1e9),)).raised(3, "ValueError", "no labels")

    assert story.began_s == 1e9
    assert alone.began_s is None
