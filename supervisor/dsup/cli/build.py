"""From options and environment to a ``Job``: every refusal before anything runs."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dsup.cli import output, torchrun
from dsup.cli.run_dir import first_choice, make_run_dir
from dsup.cli.terminal import Terminal
from dsup.cli.values import rank_count
from dsup.core.errors import SpecError
from dsup.core.job import Job, Option
from dsup.core.limits import Limits, shown
from dsup.core.parentage import Parentage, parent_of, script_of
from dsup.core.plan import Policy
from dsup.core.state import Spec
from dsup.core.streams import Streams
from dsup.linux import proc

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.]+")
_UNSAFE_IN_CACHE: Final = re.compile(r'[\\/:*?"<>|]')
_USER_VARIABLES: Final = ("LOGNAME", "USER", "LNAME", "USERNAME")
_NAME_MAX: Final = 40
_NULL: Final = "/dev/null"
_STDIN: Final = "-"
_TMP: Final = "/tmp"  # noqa: S108 (a fresh 0700 directory is made in it)
_NONE: Final = {"hang_after": "off", "comm_timeout": "inherit"}
"""The words for no value, of options that have one by default."""

_TMP_PARENT_MAX_BYTES: Final = 55
"""Below it a library makes a directory and a socket, whose path may have 107 bytes."""
# As torchrun's own run_script_path, but for sys.path: there is no launcher to keep.
_RUN_PATH: Final = (
    "import runpy, sys; del sys.argv[0]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


class Call(NamedTuple):
    """A parsed command line.

    Attributes:
        options: the value of each option and argument.
        origins: where each value came from.
        environment: what dsup was started with.
        terminal: what its streams are.
    """

    options: Mapping[str, Any]
    origins: Mapping[str, str]
    environment: Mapping[str, str]
    terminal: Terminal = Terminal()


def build(call: Call, *, dry: bool) -> Job:
    """Return the job of a call; make its run directory unless this is a dry run.

    Raises:
        SpecError: if the call asks for something that cannot be.
    """
    options, environment = call.options, call.environment
    _check(options)
    torchrun.check(options, environment)
    if options["metrics"] or options["metrics_file"] or options["on_event"]:
        from dsup.cli import onlookers

        onlookers.check(options, environment)
    program = _program_name(options["script"])
    run_id = _run_id(program)
    log_dir = options["log_dir"]
    host = _UNSAFE.sub("-", os.uname().nodename)
    asked = "" if log_dir == _NULL else log_dir or ""
    choose = first_choice if dry else make_run_dir
    python = environment.get("PYTHON_EXEC") or sys.executable
    spec = _spec(options, environment)
    voice = output.voice(options, environment)
    routed = output.output(options, _setting(call, spec.world_size))
    return Job(
        spec=spec,
        argv=_argv(options, python),
        program=program,
        environment=dict(environment),
        run_id=run_id if options["rdzv_id"] == "none" else options["rdzv_id"],
        run_dir=choose(f"{run_id}_{host}", asked, environment),
        rank_logs=log_dir != _NULL,
        private=not asked,
        agent_store=options["store"] == "agent",
        store_python=python,
        master_port=options["master_port"],
        comm_timeout_s=options["comm_timeout"],
        checkpoint_dir=_absolute(options["checkpoint_dir"]),
        checkpoint_glob=_absolute(options["checkpoint_glob"]),
        resume_arg=options["resume_arg"],
        tmp_parent=_tmp_parent(environment),
        inductor_cache=_inductor_cache(environment),
        options=_described(call),
        output=routed,
        choices=torchrun.choices(options),
        voice=voice,
        faulthandler=not options["no_faulthandler"],
        bindings=_bindings(call, spec.world_size),
        heartbeat=options["heartbeat"],
        hang_limits=options["hang_after"],
        metrics=options["metrics"],
        metrics_file=_absolute(options["metrics_file"]),
        on_event=options["on_event"],
        rank_cgroups=options["rank_cgroups"],
        parentage=_parentage(options, environment),
    )


def _parentage(options: Mapping[str, Any], environment: Mapping[str, str]) -> Parentage:
    cgroups, directory = proc.read_text("/proc/self/cgroup"), os.getcwd()
    parent = parent_of(environment, cgroups, os.uname().nodename)
    return Parentage(parent, script_of(options, directory), directory)


def _setting(call: Call, ranks: int) -> output.Setting:
    given = (name for name, origin in call.origins.items() if origin != "default")
    return output.Setting(
        given=frozenset(given),
        ranks=ranks,
        terminal=call.terminal,
        environment=call.environment,
        rank_logs=call.options["log_dir"] != _NULL,
    )


def _bindings(call: Call, ranks: int) -> tuple[tuple[str, ...], ...]:
    mode = call.options["numa_binding"]
    if not mode:
        return ()
    from dsup.cli.numa import bindings

    return bindings(mode, ranks, call.environment)


def _check(options: Mapping[str, Any]) -> None:
    try:
        os.getcwd()
    except OSError:
        raise SpecError(
            "cannot launch, because the working directory does not exist any more "
            "(change to another)"
        ) from None
    if options["module"] and options["no_python"] and not options["run_path"]:
        raise SpecError(
            "cannot use -m with --no-python, because a module needs Python "
            "(drop one of them)"
        )
    if options["checkpoint_dir"] and options["checkpoint_glob"]:
        raise SpecError(
            "cannot use --checkpoint-dir with --checkpoint-glob, because one run "
            "resumes from one place (drop one of them)"
        )
    located = options["checkpoint_dir"] or options["checkpoint_glob"]
    if options["resume_arg"] and not located:
        raise SpecError(
            "cannot use --resume-arg, because no checkpoint location is given "
            "(--checkpoint-dir or --checkpoint-glob)"
        )
    if options["resume_arg"] and "{path}" not in options["resume_arg"]:
        raise SpecError(
            f"cannot use --resume-arg {options['resume_arg']!r}, because it has no "
            "{path} (as in '--resume={path}')"
        )
    other = options["module"] or options["no_python"]
    if (options["run_path"] or not other) and options["script"] != _STDIN:
        _check_readable(options["script"])


def _check_readable(script: str) -> None:
    """Say once what else each rank's interpreter would say for itself."""
    reason = ""
    if not os.path.exists(script):
        reason = "there is no such file"
    elif not os.access(script, os.R_OK):
        reason = "it cannot be read"
    if reason:
        raise SpecError(
            f"cannot run {script}, because {reason} (looked in {os.getcwd()}; "
            "-m runs a module, --no-python a program)"
        )


def _spec(options: Mapping[str, Any], environment: Mapping[str, str]) -> Spec:
    located = options["checkpoint_dir"] or options["checkpoint_glob"]
    policy = Policy(
        max_restarts=options["max_restarts"],
        backoff_s=options["backoff"],
        healthy_after_s=options["healthy_after"],
        restart_on_user=options["restart_on"] == "user",
        checkpoints_known=bool(located),
    )
    ranks = rank_count(options["nproc"], environment)
    if options["virtual_local_rank"]:
        _check_one_gpu_each(ranks, environment)
    return Spec(
        world_size=ranks,
        settle_s=options["settle"],
        grace_s=options["shutdown_timeout"],
        keep_helpers=options["keep_helpers"],
        policy=policy,
        also_stop=torchrun.also_stop(options["signals_to_handle"]),
        on_hang=options["on_hang"],
        stop_after_s=options["stop_after"],
    )


def _check_one_gpu_each(ranks: int, environment: Mapping[str, str]) -> None:
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is not None and len(listed.split(",")) < ranks:
        raise SpecError(
            f"cannot give each of {ranks} ranks a GPU (--virtual-local-rank), because "
            f"CUDA_VISIBLE_DEVICES={listed} has {len(listed.split(','))} "
            "(lengthen it, or give fewer ranks)"
        )


def _argv(options: Mapping[str, Any], python: str) -> tuple[str, ...]:
    words = (options["script"], *options["args"])
    if options["run_path"]:
        return (python, "-u", "-c", _RUN_PATH, *words)
    if options["no_python"]:
        return words
    return (python, "-u", "-m", *words) if options["module"] else (python, "-u", *words)


def _program_name(script: str) -> str:
    name = os.path.basename(script.rstrip("/")).removesuffix(".py")
    return _UNSAFE.sub("-", name)[:_NAME_MAX] or "job"


def _run_id(program: str) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"{stamp}-{program}-{os.urandom(3).hex()}"


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path else ""


def _tmp_parent(environment: Mapping[str, str]) -> str:
    parent = _users_tmp(environment)
    return parent if len(os.fsencode(parent)) <= _TMP_PARENT_MAX_BYTES else _TMP


def _users_tmp(environment: Mapping[str, str]) -> str:
    wanted = environment.get("TMPDIR", "")
    usable = os.path.isdir(wanted) and os.access(wanted, os.W_OK | os.X_OK)
    return os.path.abspath(wanted) if usable else _TMP


def _inductor_cache(environment: Mapping[str, str]) -> str:
    """Return torch's default compile cache, as it is without a TMPDIR of ours.

    Source: torch/_inductor/runtime/cache_dir_utils.py, default_cache_dir.
    """
    names = (environment.get(name) for name in _USER_VARIABLES)
    user = next(filter(None, names), None) or _account()
    return f"{_users_tmp(environment)}/torchinductor_{_UNSAFE_IN_CACHE.sub('_', user)}"


def _account() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid_{os.getuid()}"


def _described(call: Call) -> tuple[Option, ...]:
    return tuple(
        Option(name.replace("_", "-"), _shown(name, call.options[name]), origin)
        for name, origin in call.origins.items()
    )


def _shown(name: str, value: object) -> str:
    if isinstance(value, Streams):
        pairs = (f"{rank}:{streams}" for rank, streams in value.by_rank.items())
        return ",".join(pairs) or str(value.everywhere)
    if isinstance(value, Limits):
        return shown(value)
    if isinstance(value, frozenset):
        return ",".join(map(str, sorted(value)))
    if isinstance(value, tuple):
        return " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value)
    return _NONE.get(name, "") if value is None else str(value)
