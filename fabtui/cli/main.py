"""The entry point: from arguments to an exit code, whatever happens in between."""

from __future__ import annotations

import errno
import gc
import os
import sys
import time
import traceback
from collections.abc import Sequence

from fabtui.errors import InputError

USAGE_ERROR = 2
CRASHED = 70
INTERRUPTED = 130
#: What writing to a full disk comes to.
_FULL = (errno.ENOSPC, errno.EDQUOT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        argv: The arguments without the program's name; None: those of the process.
    """
    try:
        _open_standard_files()
        code = _dispatch(argv)
        # Here, where what goes wrong can still be told in a line.
        sys.stdout.flush()
        return code
    except InputError as error:
        from fabtui.sanitize import one_line

        print(f"fabtui: error: {one_line(str(error))}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; keep the interpreter from complaining about it at exit.
        _mute_output()
        return 128 + 13
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            where = error.filename or "what is written to, standard output as a rule,"
            print(f"fabtui: error: {where} takes nothing more: {error.strerror}", file=sys.stderr)
            _mute_output()
            return USAGE_ERROR
        _report_crash(error)
        return CRASHED
    finally:
        gc.enable()


def _open_standard_files() -> None:
    """Put /dev/null where a standard file is closed, lest a file opened later take its number and what goes there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number is that of the closed file.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _mute_output() -> None:
    """Write what is still on its way to standard output nowhere, so that the interpreter says nothing of it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(argv: Sequence[str] | None) -> int:
    # Nothing of what is loaded is garbage, and looking for it takes time.
    gc.disable()
    from fabtui.cli.parser import build_parser

    words = list(sys.argv[1:] if argv is None else argv)
    args = build_parser().parse_args(words)
    if getattr(args, "command", None) not in (None, *words[:1]):
        # argparse would drop the ones before the command where both sides give an option.
        raise InputError(f"options go behind the command: fabtui {args.command} {words[0]} ...")
    args.words = words
    gc.enable()
    code: int = args.execute(args)
    return code


def _report_crash(error: BaseException) -> None:
    """Write the traceback to a file in the state folder, and print one line that names it."""
    from fabtui import __version__
    from fabtui.paths import private_folder, state_folder
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
