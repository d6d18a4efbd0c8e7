"""``fabtui report``: a page about a session, or about outputs of other tools."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fabtui.atomic_write import check_writable, write_bytes, write_text
from fabtui.cli.options_from_args import files_request, own_recordings
from fabtui.cli.outputs import output_files, reading_progress
from fabtui.cli.printing import print_lines, print_text, write_each
from fabtui.config.file import read_config
from fabtui.config.values import listed, shipped_recording
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.export.collectives_table import table_rows
from fabtui.importers.catalogue import is_ours
from fabtui.importers.formats.job_dumps import results_of
from fabtui.importers.result import Result
from fabtui.importers.session import is_recording, read_session, replayed
from fabtui.importers.to_model.dispatch import check_comparable, convertible
from fabtui.importers.to_model.dispatch import model as model_of
from fabtui.model.layers import Layer, grid_layers
from fabtui.model.session_model import Model
from fabtui.paths import user_path
from fabtui.pictures.busbw import busbw_scene
from fabtui.pictures.drawing import png, svg
from fabtui.pictures.heatmap import MODES, Mode, connectivity_scene, matrix_scene
from fabtui.pictures.scene import Scene
from fabtui.report.contents import Against, document
from fabtui.report.document import check_suffix
from fabtui.report.grid import has_values
from fabtui.report.markdown import document_text, markdown
from fabtui.report.progress import ReadingProgress
from fabtui.report.recordings import recordings_in
from fabtui.sanitize import one_line

HELP = """\
Write a report of a session or of outputs of other tools, as Markdown or one HTML file, or pictures of it.

examples:
  fabtui report --demo                         of the recorded session that fabtui replay --demo plays
  fabtui report session.jsonl.gz               report.html: verdict, findings, layers, collectives, preflight
  fabtui report session.jsonl.gz -o report.md  for a ticket
  fabtui report session.jsonl.gz -o -          Markdown on standard output
  fabtui report now.jsonl.gz --baseline before.jsonl.gz
  fabtui report nccl.log ibstat.txt -o report.html
  fabtui report session.jsonl.gz --svg pictures/ --png pictures/
  fabtui report session.jsonl.gz --png p2p.png --layer p2p --mode value

exit codes: those of run for a session; for other files 0 all formats recognised; 2 bad usage or input, or no format
recognised; 3 a format was not recognised
"""

_STDOUT = "-"
#: Name of the picture of the collectives, which is not a layer's.
CURVES = "curves"
#: Layers that are drawn first where one picture is asked for.
_FIRST = ("p2p", "world")
_WRITERS: dict[str, Callable[[Scene], bytes]] = {"svg": lambda scene: svg(scene).encode(), "png": png}
Files = list[tuple[Path, Callable[[Path], None]]]


def execute(args: argparse.Namespace) -> int:
    files = _files(args)
    wanted = picture_request(args)
    name = getattr(args, "out", None if wanted.targets else "report.html")
    out = None if name in (None, _STDOUT) else _checked(name, files)
    request = files_request(vars(args))
    against = None
    if "baseline" in args:
        against = Against(Path(args.baseline).name, read_session(args.baseline, reading_progress(args.baseline)))
    progress = reading_progress(files[0])
    model, readings, damage = _read(files, progress)
    if model is None and against is not None:
        raise InputError("--baseline: the files hold no session to compare with it")
    if model is None and request.outputs:
        raise InputError(f"--{next(iter(request.outputs))}: the files hold no nodes")
    progress.step("looking for causes")
    diagnosis = None if model is None else diagnose(model)
    progress.step("writing the report")
    page = document(
        diagnosis, [*map(_source, files)], readings, against, [damage] if damage else [], getattr(args, "site", "")
    )
    files_of_session = [] if model is None else output_files(model, request, diagnosis)
    outputs = [*picture_files(model, wanted), *files_of_session]
    if out is not None:
        outputs.append((out, lambda path: write_text(path, document_text(page, path))))
    progress.end()
    lines = write_each(outputs)
    if name == _STDOUT:
        text = markdown(page)
        for line in lines:
            print(line, file=sys.stderr)
        print_text(text)
    else:
        print_lines(lines)
    if damage:
        raise InputError(f"{damage}; the report shows the part before it")
    return page.code


def _files(args: argparse.Namespace) -> list[str]:
    """Return the files to report on; InputError for none, or one beside ``--demo``."""
    files: list[str] = getattr(args, "files", [])
    if "demo" in args:
        if files:
            raise InputError(f"--demo takes a recording that ships with fabtui; without it: fabtui report {files[0]}")
        return [str(shipped_recording(args.demo))]
    if not files:
        example = "one that ships: fabtui report --demo"
        for newest in recordings_in(own_recordings(read_config(args)))[:1]:
            example = f"your newest session: fabtui report {shlex.quote(str(newest))}"
        raise InputError(f"no file given; fabtui report FILE... -o report.html, - for standard input; {example}")
    return files


def _source(name: str) -> str:
    """Return the name of a file with its hash, which is the same for copies of it."""
    path = user_path(name)
    if not path.is_file():
        return path.name
    with path.open("rb") as file:
        return f"{path.name}, SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _checked(name: str, files: list[str]) -> Path:
    path = user_path(name).absolute()
    if any(path == user_path(file).absolute() for file in files):
        raise InputError(f"-o: {path} is one of the files to report on; name another file to write")
    check_suffix(path, "-o")
    check_writable(path, "-o")
    return path


def _read(files: list[str], progress: ReadingProgress) -> tuple[Model | None, list[Result], str]:
    if len(files) == 1 and is_recording(path := user_path(files[0])):
        model, damage = replayed(path, progress)
        return model, [], str(damage or "")
    results = list(results_of(files))
    check_comparable(results, "; report on them separately")
    if not any(result.known for result in results):
        raise InputError(
            f"{one_line(', '.join(files), 200)}: nothing to report on: no format recognised; "
            "fabtui read --list prints the known ones"
        )
    # What a single output shows about a node has its own section.
    model = model_of([result for result in results if convertible(result.kind)])
    others = [result for result in results if not is_ours(result.kind)]
    return (model if model.nodes else None), others, ""


class PictureRequest(NamedTuple):
    """Pictures to be written."""

    targets: dict[str, tuple[Path, bool]]  #: For each format a file or a folder, and whether it is a folder.
    names: list[str]  #: Layers, and `CURVES`; empty for all with results.
    modes: tuple[Mode, ...]  #: Modes of matrices; empty for both, or ``verdict`` for a file.


def picture_request(args: argparse.Namespace) -> PictureRequest:
    """Return the request of ``--svg``, ``--png``, ``--layer`` and ``--mode``; InputError for a wrong value or file."""
    targets = {kind: _target(kind, getattr(args, kind)) for kind in _WRITERS if kind in args}
    for option in ("layer", "mode"):
        if option in args and not targets:
            raise InputError(f"--{option} chooses pictures: add --svg or --png with a file or a folder")
    known = [*map(str, grid_layers()), CURVES]
    names = listed([args.layer], known, "--layer", "picture") if "layer" in args else []
    return PictureRequest(targets, list(names), tuple(mode for mode in MODES if getattr(args, "mode", None) == mode))


def _target(kind: str, text: str) -> tuple[Path, bool]:
    if text in ("", "-"):
        raise InputError(f"--{kind}: {text!r} names neither a file nor a folder")
    path = user_path(text).absolute()
    if path.suffix.lower() == f".{kind}" and not path.is_dir():
        check_writable(path, f"--{kind}")
        return path, False
    if path.suffix and not path.is_dir() and not text.endswith("/"):
        raise InputError(f"--{kind}: {text!r} should end in .{kind}, or name a folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"--{kind}: cannot make the folder {path}: {reason}") from None
    return path, True


def picture_files(model: Model | None, request: PictureRequest) -> Files:
    """Return the files of a request, each with what writes it; InputError if there is nothing to draw."""
    if not request.targets:
        return []
    known = [] if model is None else list(_with_results(model))
    if model is None or not known:
        raise InputError("--svg, --png: the files hold no pairs, pings or collectives: there is nothing to draw")
    for name in request.names:
        if name not in known:
            raise InputError(f"--layer: there are no results in {name}; there are in {', '.join(known)}")
    names = request.names or known
    files: Files = []
    for kind, (path, is_folder) in request.targets.items():
        if not is_folder and len(request.names) > 1:
            raise InputError(f"--layer: {path.name} holds one picture; name a folder for several")
        if not is_folder:
            names = request.names or [name for name in _FIRST if name in known][:1] or known[:1]
        pictures = [(name, mode) for name in names for mode in _modes(model, name, request.modes or MODES)]
        if not pictures:
            raise InputError(f"--mode: there are no values in {', '.join(names)}; use the mode verdict")
        for name, mode in pictures if is_folder else pictures[:1]:
            file = path / f"{name if name == CURVES else f'{name}-{mode}'}.{kind}" if is_folder else path
            files.append((file, partial(_write, model, name, mode, _WRITERS[kind])))
    return files


def _modes(model: Model, name: str, modes: Sequence[Mode]) -> tuple[Mode, ...]:
    """Return those of some modes that a picture has; curves have no modes, and some layers have no values."""
    if name == CURVES:
        return MODES[:1]
    layer = Layer(name)
    measured = model.measurements(Layer(layer.spec.shows or layer))
    valued = layer.spec.better is not None and any(m.value is not None for m in measured)
    return tuple(mode for mode in modes if mode == "verdict" or valued)


def _with_results(model: Model) -> Iterator[str]:
    if model.rows:
        yield from (str(layer) for layer in grid_layers() if has_values(model, layer))
    if any(row.bytes for row in table_rows(model)):
        yield CURVES


def _write(model: Model, name: str, mode: Mode, encode: Callable[[Scene], bytes], path: Path) -> None:
    if name == CURVES:
        scene = busbw_scene(model)
    elif (layer := Layer(name)).spec.by_address:
        scene = connectivity_scene(model, layer, mode)
    else:
        scene = matrix_scene(model, layer, mode)
    write_bytes(path, encode(scene))
