"""The note about an exception that nobody caught; loaded by ``sitecustomize``.

It is in memory before the user's code runs, and words its JSON itself: then the note
needs no file, which the user's own ``json.py`` could stand in for, and which could not
be opened where no descriptor is free.

Any Python from 3.8 on. Whatever goes wrong in here, the user sees what Python alone
would show.
"""

import _thread
import os
import stat
import sys
import time

TYPE_CHECKING = False  # typing itself would be an import that costs
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import ExceptHookArgs, Thread
    from types import TracebackType

    Raised = tuple[type[BaseException], BaseException | None, TracebackType | None]

_NOTE_MAX_BYTES = 65536
_TEXT_MAX_BYTES = 8192
_SHORT_MAX_BYTES = 1024
_NAME_MAX_BYTES = 200
_CAUSES_MAX = 4
_UNNAMED = "?"
_MAIN = ("<module>", "_run_module_as_main")
"""How the outermost frame of a program's own call is named."""

_RUNTIME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = ("/site-packages/", "/dist-packages/")


def install(variable: str) -> None:
    """Have uncaught exceptions told to the agent first; then all is as ever.

    The hooks are closures: globals of ``__main__`` may be gone when they run.

    Args:
        variable: the value of DSUP_NOTES.
    """
    channel = _prove(variable)
    if channel is None:
        return
    main = _thread.get_ident()
    print_it = sys.excepthook

    def excepthook(
        kind: "type[BaseException]",
        value: BaseException,
        trace: "TracebackType | None",
    ) -> None:
        # A thread comes here when its own hook fails.
        thread = "" if _thread.get_ident() == main else _UNNAMED
        _tell(channel, (kind, value, trace), thread)
        print_it(kind, value, trace)

    sys.excepthook = excepthook
    # Until it is imported, threading's hook is what it will find in _thread.
    threading = sys.modules.get("threading")
    home, name = (threading, "excepthook") if threading else (_thread, "_excepthook")
    setattr(home, name, _thread_hook(channel, getattr(home, name)))


def _thread_hook(
    channel: "tuple[int, int]", print_it: "Callable[[ExceptHookArgs], None]"
) -> "Callable[[ExceptHookArgs], None]":
    def excepthook(args: "ExceptHookArgs") -> None:
        if args.exc_type is not SystemExit:
            raised = args.exc_type, args.exc_value, args.exc_traceback
            _tell(channel, raised, args.thread)
        print_it(args)

    return excepthook


def _prove(variable: str) -> "tuple[int, int] | None":
    """Return descriptor and inode of the socket; None if there is none.

    Programs that a rank starts do not inherit it; processes that it forks do.
    """
    kind, _, number = variable.partition(":")
    if kind != "fd" or not (number.isascii() and number.isdigit()):
        return None
    try:
        fd = int(number)
        found = os.fstat(fd)
        if not stat.S_ISSOCK(found.st_mode):
            return None
        os.set_inheritable(fd, False)
    except (OSError, OverflowError, ValueError):
        return None
    return fd, found.st_ino


def _tell(
    channel: "tuple[int, int]", raised: "Raised", thread: "Thread | str | None"
) -> None:
    """Send the note.

    Args:
        channel: descriptor and inode of the socket.
        raised: type, exception (None if it is lost) and traceback.
        thread: the thread, or its name, which is empty for the main thread.
    """
    try:
        at_ns = time.monotonic_ns()
        if issubclass(raised[0], KeyboardInterrupt) or _is_told(raised[1]):
            return
        note = describe(raised)
        note["at_ns"] = at_ns
        note["thread"] = _thread_name(thread)
        note["handed"] = int(_goes_on())
        data = _json(note).encode()
        if len(data) > _NOTE_MAX_BYTES:
            # Control characters take six bytes each.
            note["text"] = _text(raised[1], _SHORT_MAX_BYTES)
            data = _json(note).encode()
        _send(channel, data)
    except BaseException:  # noqa: BLE001, S110
        # Out of memory, out of stack, in the middle of the interpreter's end: nothing
        # may keep the user's traceback from being printed.
        pass


def _is_told(value: object) -> bool:
    """Return whether the runtime has told of this exception when it ended the run."""
    try:
        return vars(value).get("__dsup_told__") is True
    except BaseException:  # noqa: BLE001
        return False  # it is lost, or an attribute is of the user's own making


def describe(raised: "Raised") -> "dict[str, object]":
    """Return the note about an exception, without its time and thread."""
    kind, value, trace = raised
    file, line, function = _place(value, trace)
    return {
        "v": 1,
        "kind": "raised",
        "type": _type_name(kind),
        "text": _text(value, _TEXT_MAX_BYTES),
        "pid": os.getpid(),
        "file": _cut(file, _SHORT_MAX_BYTES),
        "line": line,
        "function": _cut(function, _NAME_MAX_BYTES),
        "causes": [
            [_type_name(type(cause)), _text(cause, _SHORT_MAX_BYTES)]
            for cause in _causes(value)
        ],
    }


def _send(channel: "tuple[int, int]", data: bytes) -> None:
    fd, inode = channel
    # Whatever else has this number by now is not to be written to.
    if os.fstat(fd).st_ino != inode:
        return
    import _socket  # the user cannot have a module of that name by accident

    found = _socket.socket(fileno=fd)
    try:
        if found.family == _socket.AF_UNIX and found.type == _socket.SOCK_DGRAM:
            found.send(data, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
    finally:
        found.detach()


def _goes_on() -> bool:
    """Return whether the program called the hook itself, and will go on after it.

    The interpreter calls it when every frame of the main module has been left.
    """
    frame = sys._getframe()  # noqa: SLF001 (what inspect would do, at a cost)
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name in _MAIN


def _place(
    value: object, trace: "TracebackType | None"
) -> "tuple[str, int | None, str]":
    """Return file, line and function of the innermost frame of the user's code."""
    if isinstance(value, SyntaxError) and not str(value.filename or "<").startswith(
        "<"
    ):
        return str(value.filename), value.lineno, ""
    innermost: tuple[str, int | None, str] = ("", None, "")
    found = innermost
    while trace is not None:
        code = trace.tb_frame.f_code
        innermost = code.co_filename, trace.tb_lineno, code.co_name
        if not _is_foreign(code.co_filename):
            found = innermost
        trace = trace.tb_next
    return found if found[0] else innermost


def _is_foreign(file: str) -> bool:
    ours = file.startswith((_LIBRARY, _RUNTIME, "<frozen "))
    return ours or any(part in file for part in _INSTALLED)


def _causes(value: object) -> "list[object]":
    """Return what it was raised from, or while, the nearest first."""
    found = [value]
    try:
        while isinstance(value, BaseException) and len(found) <= _CAUSES_MAX:
            hidden = value.__suppress_context__
            value = value.__cause__ or (None if hidden else value.__context__)
            if value is None or any(value is known for known in found):
                break
            found.append(value)
    except BaseException:  # noqa: BLE001
        return found[1:]  # an attribute is of the user's own making
    return found[1:]


def _type_name(kind: type) -> str:
    try:
        module, name = kind.__module__, kind.__qualname__
        plain = module in ("builtins", "__main__")
        return _cut(name if plain else f"{module}.{name}", _NAME_MAX_BYTES)
    except BaseException:  # noqa: BLE001
        return "Exception"  # its metaclass is of the user's own making


def _thread_name(thread: "Thread | str | None") -> str:
    if isinstance(thread, str):
        return thread
    try:
        name = thread.name if thread is not None else _UNNAMED
        return _cut(str(name), _NAME_MAX_BYTES) or _UNNAMED
    except BaseException:  # noqa: BLE001
        return _UNNAMED  # as above


def _text(value: object, most: int) -> str:
    try:
        return _cut("" if value is None else str(value), most)
    except BaseException:  # noqa: BLE001
        return "<exception str() failed>"  # in Python's own words


def _cut(text: str, most: int) -> str:
    """Return at most so many bytes of a text, without its middle if it has more.

    The end of an exception that came from another process is its own message.
    """
    if len(text) > most:
        text = text[:most] + text[-most:]
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > most:
        half = most // 2 - 3
        data = data[:half] + b" ... " + data[-half:]
    return data.decode("utf-8", "ignore")


def _json(value: object) -> str:
    if isinstance(value, str):
        plain = (
            c if c >= " " and c not in '"\\' else f"\\u{ord(c):04x}" for c in value
        )
        return '"' + "".join(plain) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(k)}:{_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_json(item) for item in value) + "]"
    return "null" if value is None else str(value)
