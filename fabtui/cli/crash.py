"""What is left of an error nobody expected: one line on the screen, the rest in a file."""

from __future__ import annotations

import sys
import time
import traceback


def report_crash(error: BaseException) -> None:
    """Write the traceback to a file in the state folder, and print one line that names it."""
    from fabtui import __version__
    from fabtui.places import private_folder, state_folder
    from fabtui.sanitize import clean, one_line

    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # What a node said may be in it, and people look at logs in a terminal.
    text = clean("".join(traceback.format_exception(error)))
    name = one_line(f"{type(error).__name__}: {error}")[:300]
    try:
        path = private_folder(state_folder()) / "crash.log"
        with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
            path.chmod(0o600)
            # Not the arguments: --env may carry secrets.
            log.write(f"{stamp} fabtui {__version__} Python {sys.version.split()[0]}\n{text}\n")
    except OSError as problem:
        print(f"fabtui: unexpected {name} (and no log could be written: {problem})", file=sys.stderr)
        return
    print(f"fabtui: unexpected {name}; this is a bug, the details are in {path}", file=sys.stderr)
