"""The entry point: run the command line and return an exit code."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module

from fabtui.errors import InputError
from fabtui.exit_status import BAD_INPUT, CRASHED, INTERRUPTED
from fabtui.paths import private_folder, state_folder
from fabtui.sanitize import clean, one_line, printable
from fabtui.version import __version__

#: Errors of a full disk.
_FULL = (errno.ENOSPC, errno.EDQUOT)


class CleanOutput(io.TextIOWrapper):
    """Text file that drops control and invisible characters but for line ends, tabs and colours."""

    def __init__(self, file: io.TextIOWrapper) -> None:
        super().__init__(file.buffer, encoding=file.encoding, errors=file.errors, line_buffering=file.line_buffering)
        # It stays usable, as the screen writes to it; when it is collected it closes the buffer of both.
        self._original = file

    def write(self, text: str) -> int:
        super().write(printable(text))
        return len(text)


def clean_standard_files() -> None:
    """Replace standard output and error of this process; those of a test's harness are left as they are."""
    for name in ("stdout", "stderr"):
        file = getattr(sys, name)
        if type(file) is io.TextIOWrapper:
            setattr(sys, name, CleanOutput(file))


def main(argv: Sequence[str] | None = None) -> int:
    try:
        _open_standard_files()
        if argv is None:
            clean_standard_files()
            # NumPy's threads would wait actively on all cores of a login node, for arrays that one core handles.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        # Flushed here, where an error is still reported in one line.
        sys.stdout.flush()
        return code
    except InputError as error:
        print(f"fabtui: error: {one_line(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of standard output is gone; the interpreter must not report that again at exit.
        _mute_output()
        return 128 + 13
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            where = error.filename or "standard output"
            print(f"fabtui: error: cannot write {where}: {error.strerror}", file=sys.stderr)
            _mute_output()
            return BAD_INPUT
        print(report_crash(error), file=sys.stderr)
        return CRASHED
    finally:
        gc.enable()
        if argv is None:
            # The interpreter would look for garbage in all that is imported before it ends: 0.1 s.
            gc.freeze()


def _open_standard_files() -> None:
    """Open /dev/null for a closed standard file: a file opened later would get its number and its data."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # open() takes the lowest free number, which the closed file had.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _mute_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if words == ["--version"]:
        print(f"fabtui {__version__}")
        return 0
    from fabtui.cli.parser import COMMANDS, FURTHER, LIVE, build_parser, expanded, first_word, place_of, unknown_option

    # Nothing that is imported here is garbage, and collecting takes time.
    gc.disable()
    # numpy would start a thread for each core of the login node; nothing here is worth more than one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words, asks = expanded(words), False
    at = first_word(words)
    if at < len(words) and words[at] not in (*COMMANDS, *FURTHER, "--") and not unknown_option(words[:at], ""):
        # The readers of files and the scheduler are imported for such words only.
        words, asks = import_module("fabtui.cli.likely_command").likely_command(words, at)
    args = build_parser(words).parse_args(words)
    command = getattr(args, "command", None)
    name, end = place_of(command or "")
    if command in LIVE and "no_job" not in args and is_other_task():
        return 0
    args.words = words
    if asks:
        args.asks = True
    # By name: the modules of the other commands, and all that they import, are not loaded.
    module = import_module(f"fabtui.cli.commands.{name}")
    # The modules stay in memory: the collector need not look at them again.
    gc.freeze()
    gc.enable()
    code: int = getattr(module, f"execute{end}")(args)
    return code


def is_other_task(environ: Mapping[str, str] = os.environ) -> bool:
    """Return True in all tasks of a job step but the first: one copy of the program is enough."""
    tasks = (("SLURM_STEP_ID", "SLURM_PROCID"), ("FLUX_JOB_ID", "FLUX_TASK_RANK"))
    return any(step in environ and environ.get(rank, "0") not in ("", "0") for step, rank in tasks)


def report_crash(error: BaseException) -> str:
    """Append the traceback to a file in the state folder; return one line that names it."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # It may contain text of a node, and logs are read in a terminal.
    text = clean("".join(traceback.format_exception(error)))
    name = one_line(f"{type(error).__name__}: {error}")[:300]
    try:
        path = private_folder(state_folder()) / "crash.log"
        with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
            path.chmod(0o600)
            # Without the arguments: --env may contain secrets.
            log.write(f"{stamp} fabtui {__version__} Python {sys.version.split()[0]}\n{text}\n")
    except (OSError, InputError) as problem:
        return f"fabtui: unexpected {name} (the log could not be written: {problem})"
    return f"fabtui: unexpected {name}; this is a bug; see {path}"
