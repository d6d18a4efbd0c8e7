"""``fabtui report``: a page about a session, or about outputs of other tools."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from fabtui.cli.commands.read import results_of
from fabtui.cli.options_from_args import Request, exposition_of, output_paths
from fabtui.cli.outputs import output_files, print_lines, write_each
from fabtui.cli.picture_files import picture_files, picture_request
from fabtui.errors import InputError
from fabtui.export.atomic_write import check_writable
from fabtui.importers.result import Result
from fabtui.importers.session import is_recording, read_session, replayed
from fabtui.importers.to_model.dispatch import model as model_of
from fabtui.importers.to_model.dispatch import rivals
from fabtui.model.session_model import Model
from fabtui.pages.contents import Against, document
from fabtui.pages.formats import write_document
from fabtui.pages.markdown import markdown
from fabtui.pages.suffixes import check_suffix
from fabtui.paths import user_path
from fabtui.report.tables import takes_unicode
from fabtui.session.options import SessionOptions

_STDOUT = "-"


def execute(args: argparse.Namespace) -> int:
    """Write a report; return the exit code of the session, or 0 if all formats of other files are known.

    Raises:
        InputError: A file cannot be read, or the report cannot be written.
    """
    files = getattr(args, "files", [])
    if not files:
        raise InputError("no file given; fabtui report FILE... -o report.html, - for standard input")
    wanted = picture_request(args)
    name = getattr(args, "out", None if wanted.targets else "report.html")
    out = None if name in (None, _STDOUT) else _checked(name, files)
    request = Request(SessionOptions(), output_paths(vars(args)), exposition_of(vars(args)))
    against = Against(Path(args.baseline).name, read_session(args.baseline)) if "baseline" in args else None
    model, readings, damage = _read(files)
    if model is None and against is not None:
        raise InputError("--baseline: the files hold no session to compare with it")
    if model is None and request.outputs:
        raise InputError(f"--{next(iter(request.outputs))}: the files hold no nodes")
    found = document(model, [Path(name).name for name in files], readings, against, [damage] if damage else [])
    files_of_session = [] if model is None else output_files(model, request)
    outputs = [*picture_files(model, wanted), *files_of_session]
    if out is not None:
        outputs.append((out, partial(write_document, found)))
    lines = write_each(outputs)
    if name == _STDOUT:
        text = markdown(found)
        for line in lines:
            print(line, file=sys.stderr)
        sys.stdout.write(text if takes_unicode(sys.stdout) else text.encode("ascii", "replace").decode("ascii"))
    else:
        print_lines(lines)
    if damage:
        raise InputError(f"{damage}; the report shows the part before it")
    return found.code


def _checked(name: str, files: list[str]) -> Path:
    """Return the path of the report; InputError if it cannot be written."""
    path = user_path(name).absolute()
    if any(path == user_path(file).absolute() for file in files):
        raise InputError(f"-o: {path} is one of the files to report on; name another file to write")
    check_suffix(path, "-o")
    check_writable(path, "-o")
    return path


def _read(files: list[str]) -> tuple[Model | None, list[Result], str]:
    """Return the session in files, the outputs of other tools, and where a recording is damaged."""
    if len(files) == 1 and is_recording(path := user_path(files[0])):
        model, damage = replayed(path)
        return model, [], str(damage or "")
    results = list(results_of(files))
    if len(kinds := rivals(results)) > 1:
        raise InputError(f"the pair values of {' and '.join(kinds)} are not comparable; report on them separately")
    model = model_of(results)
    others = [result for result in results if not result.kind.startswith("fabtui-")]
    return (model if model.nodes else None), others, ""
