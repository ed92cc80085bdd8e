"""The ``dsup`` command, before anything is imported that the guard does not need."""

from __future__ import annotations

import os
import sys

from dsup.linux.guardian import Guardian


def main() -> None:
    """Run the command line; ``launch`` under a guard."""
    words = sys.argv[1:]
    if words[:1] == ["launch"]:
        from dsup.guard import guard

        # Nothing is left to flush, and the interpreter's own end takes 10 ms.
        manager = os.environ.get("NOTIFY_SOCKET", "")
        os._exit(guard(lambda guardian: _run(words, guardian), manager))
    sys.exit(_run(words, None))


def _run(words: list[str], guardian: Guardian | None) -> int:
    from dsup.cli.main import run

    return run(words, guardian)


if __name__ == "__main__":
    main()
