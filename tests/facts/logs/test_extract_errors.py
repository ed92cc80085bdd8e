"""Exceptions in other people's logs: whose, of which type, and where raised."""

from __future__ import annotations

from dsup.facts.logs.extract import attempt
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import LoggedAttempt


def read(*texts: str | tuple[int, str]) -> LoggedAttempt:
    """Return what lines tell; a pair is a line that torch marked with its rank."""
    lines = []
    for order, text in enumerate(texts):
        rank, said = text if isinstance(text, tuple) else (None, text)
        ranked = rank is not None
        lines.append(
            LogLine(said, Place(rank), "job.log", order + 1, order, ranked=ranked)
        )
    return attempt(lines, 0)


HEADER = "Traceback (most recent call last):"
USER = '  File "/home/ann/fit.py", line 31, in step'
TORCH = '  File "/opt/py/site-packages/torch/nn/module.py", line 7, in call'
AGENT = '  File "/opt/py/site-packages/torch/distributed/run.py", line 9, in run'
WRAPPER = (
    '  File "/opt/py/site-packages/torch/distributed/elastic/multiprocessing/errors/'
    '__init__.py", line 348, in wrapper'
)


def test_names_the_innermost_frame_of_the_users_code() -> None:
    """Neither a library's frame nor the elastic wrapper's is where the fault is."""
    found = read(
        (5, HEADER),
        (5, '  File "/home/ann/fit.py", line 90, in <module>'),
        (5, WRAPPER),
        (5, USER),
        (5, TORCH),
        (5, "ValueError: odd shape"),
    )
    [error] = found.errors
    assert (error.place.rank, error.type, error.text) == (5, "ValueError", "odd shape")
    assert error.frame == "/home/ann/fit.py:31 in step"
    assert len(error.frames) == 4


def test_keeps_all_lines_of_an_exceptions_text() -> None:
    """NCCL's reason stands in the last line of a text of several."""
    found = read(
        HEADER,
        USER,
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled error",
        "ncclUnhandledCudaError: Call failed.",
        "Last error:",
        "Cuda failure 2 'out of memory'",
        "",
        "unrelated",
    )
    assert found.errors[0].text.endswith("Cuda failure 2 'out of memory'")


def test_links_a_chain_into_one_error() -> None:
    """The first link of a chain is a cause, and no error of its own."""
    found = read(
        HEADER,
        USER,
        "KeyError: 'lr'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        HEADER,
        USER,
        "RuntimeError: no rate",
    )
    [error] = found.errors
    assert error.type == "RuntimeError"
    assert error.causes == (("KeyError", "'lr'"),)


def test_ends_both_of_two_woven_tracebacks() -> None:
    """Ranks without prefixes write through each other: a head ends nothing."""
    found = read(HEADER, HEADER, USER, USER, "ImportError: a", "ImportError: a")
    assert [error.type for error in found.errors] == ["ImportError", "ImportError"]


def test_mends_a_type_that_two_ranks_wrote_at_once() -> None:
    """Pieces of two writes stand in one line, doubled or torn from their text."""
    doubled = read(HEADER, USER, "a.ba.b.OddError.: OddErrorno room left")
    torn = read(HEADER, USER, "    raise TornError(", ": it did not fit")
    assert doubled.errors[0].type == "OddError"
    assert (torn.errors[0].type, torn.errors[0].text) == (
        "TornError",
        "it did not fit",
    )


def test_keeps_the_frames_of_a_traceback_that_was_cut() -> None:
    """Frames still tell where a rank was when the line of its exception is lost."""
    [error] = read((2, HEADER), (2, USER), (2, "    raise e1 from None")).errors
    assert (error.type, error.place.rank) == ("", 2)
    assert error.frame == "/home/ann/fit.py:31 in step"


def test_reads_a_traceback_whose_head_was_cut() -> None:
    """An excerpt may begin between two frames."""
    [error] = read((1, TORCH), (1, "    x = f()"), (1, "TypeError: no")).errors
    assert (error.type, error.text) == ("TypeError", "no")


def test_leaves_out_what_a_launcher_raises() -> None:
    """Its traceback is the last and the longest, and never the cause."""
    found = read(
        HEADER,
        AGENT,
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "",
        HEADER,
        '  File "/home/ann/wrapper/cli.py", line 24, in main',
    )
    assert found.errors == ()


def test_calls_a_launchers_lost_store_a_complaint() -> None:
    """The agent's own connection error tells of the store, not of a rank."""
    found = read(HEADER, AGENT, "torch.distributed.DistNetworkError: EADDRINUSE: 29500")
    assert found.errors == ()
    assert [complaint.kind for complaint in found.complaints] == ["port"]


def test_gives_a_spawned_process_the_rank_of_its_index() -> None:
    """The spawner quotes the traceback of process 1, which is rank 1 on one node."""
    found = read(
        HEADER,
        USER,
        "torch.multiprocessing.spawn.ProcessRaisedException: ",
        "",
        "-- Process 1 terminated with the following error:",
        HEADER,
        USER,
        "FloatingPointError: loss is nan",
    )
    [error] = found.errors
    assert (error.type, error.place.rank) == ("FloatingPointError", 1)


def test_takes_the_pid_of_a_ray_worker_from_its_own_line() -> None:
    """Ray raises a worker's error again elsewhere; the inner line names the worker."""
    found = read(
        HEADER,
        USER,
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::W.f() "
        "(pid=71, ip=10.0.0.3)",
        USER,
        "torch.OutOfMemoryError: CUDA out of memory.",
    )
    inner = found.errors[-1]
    assert (inner.place.pid, inner.place.node) == (71, "10.0.0.3")
    assert inner.type == "torch.OutOfMemoryError"


def test_takes_no_rank_from_gpu_0_where_every_rank_says_so() -> None:
    """A launcher that shows each process one GPU lets all of them call it 0."""
    said = (
        "torch.OutOfMemoryError: CUDA out of memory. GPU {} has a total capacity of 9"
    )
    alike = read(HEADER, USER, said.format(0), "", HEADER, USER, said.format(0))
    apart = read(HEADER, USER, said.format(3))
    assert {error.place.rank for error in alike.errors} == {None}
    assert apart.errors[0].place.rank == 3


def test_takes_the_rank_from_the_file_that_was_being_written() -> None:
    """A checkpoint's file is named by its rank in the line before it fails."""
    found = read(
        "Saving ./out/zero_pp_rank_6_mp_rank_00_optim.pt...",
        HEADER,
        USER,
        "RuntimeError: PytorchStreamWriter failed: file write failed",
    )
    assert found.errors[0].place.rank == 6


def test_takes_the_rank_from_a_message_that_names_its_speaker() -> None:
    """Frameworks write the rank into the text: Megatron, DDP."""
    first = read(HEADER, USER, "AssertionError: Rank 114: found NaN in local grad norm")
    second = read(HEADER, USER, "RuntimeError: same model, but Rank 1 has 240 params")
    assert first.errors[0].place.rank == 114
    assert second.errors[0].place.rank == 1


def test_a_stack_of_faulthandlers_is_no_traceback() -> None:
    """It is printed the other way round, and no exception follows."""
    found = read(
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007f12 (most recent call first):",
        '  File "/home/ann/fit.py", line 31 in step',
        '  File "/home/ann/fit.py", line 90 in <module>',
    )
    assert found.errors == ()
    assert found.complaints[0].kind == "crash"


def test_ignores_what_python_calls_of_no_consequence() -> None:
    """An exception in a destructor ends nothing."""
    found = read(
        "Exception ignored in: <function f at 0x1>", HEADER, USER, "OSError: gone"
    )
    assert found.errors == ()
