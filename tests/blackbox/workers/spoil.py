"""Rank 1 leaves something that is no error file where one belongs, and exits with 3."""

import json
import os
import sys
import threading

PATH = os.environ["TORCHELASTIC_ERROR_FILE"]
CLAIM = {"message": {"message": "KeyError: forged", "extraInfo": {"timestamp": "9e9"}}}


def leave(kind):
    """Make the file."""
    match kind:
        case "garbage":
            with open(PATH, "wb") as file:
                file.write(os.urandom(4096))
        case "fifo":
            os.mkfifo(PATH)
        case "huge":
            with open(PATH, "wb") as file:
                file.truncate(1 << 30)
        case "link":
            os.symlink("/etc/passwd", PATH)
        case _:
            with open(PATH, "w") as file:
                json.dump(CLAIM, file)


if os.environ["RANK"] == "1":
    leave(sys.argv[1])
    sys.exit(3)
threading.Event().wait(600)
