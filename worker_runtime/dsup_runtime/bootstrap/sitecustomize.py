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

TYPE_CHECKING = False  # as type checkers know it; importing typing costs too much
if TYPE_CHECKING:
    from types import TracebackType

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


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
    try:
        import faulthandler

        if not faulthandler.is_enabled():
            faulthandler.enable(2)
    except Exception:  # noqa: BLE001, S110
        # An interpreter without it, or a closed stderr: the script must run all the
        # same, it just says less when it crashes.
        pass


def _install_hooks(notes: str, directory: str) -> None:  # noqa: PLR0915 (closures)
    """Have uncaught exceptions told to the agent first; then all is as ever.

    The hooks are closures: the globals of ``__main__`` may be gone when they run. The
    module that words the note is imported when there is something to tell.
    """
    import _thread

    print_it = sys.excepthook
    print_threads = _thread._excepthook  # noqa: SLF001 (what threading imports)

    def tell(
        value: "BaseException | None", trace: "TracebackType | None", thread: str
    ) -> None:
        try:
            import time

            at_ns = time.monotonic_ns()
            sys.path.insert(0, directory)
            try:
                import _dsup_notes  # type: ignore[import-not-found]
            finally:
                sys.path.remove(directory)
            _dsup_notes.tell(value, trace, thread, (at_ns, notes))
        except BaseException:  # noqa: BLE001, S110
            # Out of memory, out of stack, in the middle of the interpreter's end:
            # nothing may keep the user's traceback from being printed.
            pass

    def excepthook(
        kind: "type[BaseException]", value: BaseException, trace: "TracebackType | None"
    ) -> None:
        if kind is not KeyboardInterrupt:
            tell(value, trace, "")
        print_it(kind, value, trace)

    def thread_excepthook(args: "_thread._ExceptHookArgs") -> None:
        if args.exc_type is not SystemExit:
            name = args.thread.name if args.thread is not None else "?"
            tell(args.exc_value, args.exc_traceback, name)
        print_threads(args)

    sys.excepthook = excepthook
    # threading takes its hook from here when it is imported; it may have been.
    _thread._excepthook = thread_excepthook  # noqa: SLF001
    if "threading" in sys.modules:
        import threading

        threading.excepthook = thread_excepthook
        threading._excepthook = thread_excepthook  # type: ignore[attr-defined]  # noqa: SLF001


_directory = os.path.dirname(os.path.abspath(__file__))
_remove_directory(_directory)
_agent, _, _wish = os.environ.pop("DSUP_BOOTSTRAP", "").partition(":")
_die_with(_agent)
if _wish != "no-faulthandler":
    _arm_faulthandler()
_notes = os.environ.get("DSUP_NOTES")
if _notes:
    _install_hooks(_notes, _directory)

# The user's own sitecustomize, if any, takes this module's place. If there is none, or
# it fails, the error goes to Python's site module as it would without dsup.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
