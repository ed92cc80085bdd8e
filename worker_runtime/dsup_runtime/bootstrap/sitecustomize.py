"""Run by every Python that dsup starts, before any user code; leaves no trace.

dsup puts this directory first on PYTHONPATH and its agent's pid into DSUP_BOOTSTRAP.
Then ``__main__``, argv, pickling and multiprocessing are what they are without dsup.
What stays are a fault handler on stderr and hooks that tell the agent of an exception
nobody caught, before they do what Python does. Under ``-I``, ``-E`` or ``-S`` none of
this happens, and nothing depends on it.

It runs in interpreters that dsup does not know: standard library only, any Python from
3.8 on, and no import that costs anything.
"""

import os
import sys

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_STACKS_SIGNAL = 39  # as in dsup_runtime.contract, which is not imported here
_MAIN_STACK_SIGNAL = 40
_STACKS_LINK = "/memfd:dsup-stacks (deleted)"


def _remove_directory(directory: str) -> None:
    """Take this directory off sys.path and PYTHONPATH; every other entry stays."""
    sys.path[:] = [entry for entry in sys.path if entry != directory]
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    rest = os.pathsep.join(entry for entry in entries if entry != directory)
    if rest:
        os.environ["PYTHONPATH"] = rest
    else:
        os.environ.pop("PYTHONPATH", None)


def _die_with(agent: str) -> None:
    """Have the kernel kill this process when its parent, the agent, is gone.

    Only the agent's own child does so: the death of a shell in between means nothing.
    """
    if str(os.getppid()) != agent:
        return
    try:
        import _ctypes  # ctypes itself costs 5 ms

        libc = _ctypes.dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]  # as CDLL(None)
        prctl = _ctypes.dlsym(libc, "prctl")
        _ctypes.call_function(prctl, (_PR_SET_PDEATHSIG, _SIGKILL))
    except Exception:  # noqa: BLE001, S110
        # A private interface: whatever goes wrong in it, the user's script must run.
        # dsup's guard kills what outlives the agent, in any case.
        pass
    if str(os.getppid()) != agent:
        # It died before the kernel knew: end as that signal would have ended this, in
        # the code by which shells report it.
        os._exit(128 + _SIGKILL)


def _arm_faulthandler() -> None:
    """Have a crash print where Python was, on stderr."""
    if sys.stderr is None:
        return  # it is closed, and its number may become any file's
    try:
        import faulthandler

        if not faulthandler.is_enabled():
            faulthandler.enable(2)
    except Exception:  # noqa: BLE001, S110
        # An interpreter without it: the script must run all the same, it just says less
        # when it crashes.
        pass


def _arm_stacks(place: str) -> None:
    """Have a signal of dsup's write where each thread is, into dsup's memory file.

    A second one is for the thread that takes it alone: the main one, which the first
    leaves out where there are more than a hundred.

    It is written by C code that needs no lock of the interpreter's, so a program that
    hangs tells it, too. A child that is forked has the handler and the descriptor, but
    dsup sends the signal to no process but the one that was started for the rank, or
    the first Python below it. Programs that this one starts have neither.
    """
    try:
        import faulthandler
        from _signal import SIG_DFL, getsignal  # type: ignore[import-not-found]

        fd = int(place.partition(":")[2])
        if os.readlink(f"/proc/self/fd/{fd}") == _STACKS_LINK:
            os.set_inheritable(fd, False)
            if getsignal(_STACKS_SIGNAL) == SIG_DFL:
                faulthandler.register(_STACKS_SIGNAL, file=fd, all_threads=True)
            if getsignal(_MAIN_STACK_SIGNAL) == SIG_DFL:
                faulthandler.register(_MAIN_STACK_SIGNAL, file=fd, all_threads=False)
    except Exception:  # noqa: BLE001, S110
        # Nothing that is ours, or an interpreter without it: the script runs, and its
        # stacks have to be read from outside.
        pass


def _install_hooks(notes: str) -> None:
    """Have the agent told of exceptions that nobody catches."""
    try:
        import _dsup_notes  # type: ignore[import-not-found]

        del sys.modules["_dsup_notes"]
        _dsup_notes.install(notes)
    except Exception:  # noqa: BLE001, S110
        # Half an installation, or an interpreter with other hooks: the agent hears
        # less, and the script runs.
        pass


_agent, _, _wish = os.environ.pop("DSUP_BOOTSTRAP", "").partition(":")
_die_with(_agent)
if _wish != "no-faulthandler":
    _arm_faulthandler()
    _arm_stacks(os.environ.get("DSUP_STACKS", ""))
_install_hooks(os.environ.get("DSUP_NOTES", ""))
_remove_directory(os.path.dirname(os.path.abspath(__file__)))

# The user's own sitecustomize, if any, takes this module's place. If there is none, or
# it fails, the error goes to Python's site module as it would without dsup.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
