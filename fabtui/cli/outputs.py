"""Texts and files of sessions, recordings and results, as commands print and write them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from fabtui.atomic_write import write_text
from fabtui.cli.options_from_args import Request
from fabtui.cli.printing import is_plain, print_json, print_lines, write_each, write_first
from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.errors import InputError
from fabtui.exit_status import INTERRUPTED
from fabtui.export.collectives_table import write_table
from fabtui.export.csv import write_csv
from fabtui.export.formats import cleaned
from fabtui.export.json import session_text
from fabtui.export.junit import junit_text
from fabtui.export.openmetrics import MODE, metrics_text
from fabtui.export.planner import planner_text
from fabtui.importers.result import Result
from fabtui.importers.session import replayed
from fabtui.importers.to_model.dispatch import findings_about
from fabtui.model.session_model import Model
from fabtui.presentation.findings import as_json as finding_json
from fabtui.presentation.verdict_line import sentence_of
from fabtui.report.contents import document
from fabtui.report.document import Paragraph, Shown
from fabtui.report.imported_output import text_of
from fabtui.report.markdown import document_text
from fabtui.report.preflight import print_preflight
from fabtui.report.progress import ReadingProgress
from fabtui.report.session_notes import job_blocks
from fabtui.report.summary import summary
from fabtui.report.text import text
from fabtui.session.feeds.base import Feed

#: Width of texts in a pipe or a file: unlimited.
_UNLIMITED = 10_000
#: Writer of each table, which returns its number of rows.
MODEL_WRITERS: dict[str, Callable[[Model, Path], int]] = {"csv": write_csv, "table": write_table}
#: Text of the file of each other output option.
DIAGNOSIS_TEXTS: dict[str, Callable[[Diagnosis, Path], str]] = {
    "json": lambda found, _: session_text(found),
    "junit": lambda found, _: junit_text(found),
    "planner": lambda found, _: planner_text(found.model),
    "report": lambda found, path: document_text(document(found, ()), path),
}

#: Number of lines that a terminal shows at least.
_SCREEN = 24


def print_session(found: Diagnosis, plain: bool, shown: Shown, lines: Iterable[str] = ()) -> int:
    """Print a summary, or a preflight alone, lines about files, and after a long text the verdict again."""
    text_above = ""
    if found.model.options.get("looks_only"):
        if found.job is not None:
            sys.stdout.write(text(job_blocks(found.job), shown.text_width, plain) + "\n")
        print_preflight(found.model, found.preflight, None, "", False, plain)
    else:
        text_above = summary(found, plain, shown)
        sys.stdout.write(text_above)
    print_lines(lines)
    if text_above.count("\n") > _SCREEN:
        sys.stdout.write("\n" + text([Paragraph(sentence_of(found))], shown.text_width, plain))
    return found.code


def reading_progress(file: str | Path) -> ReadingProgress:
    return ReadingProgress(sys.stderr, Path(file).name)


def print_recording(path: Path, request: Request, plain: bool, shown: Shown) -> int:
    """Print a recording and write the files; return the exit code. InputError after the part before a damage."""
    progress = reading_progress(path)
    model, damage = replayed(path, progress)
    progress.step("looking for causes")
    diagnosis = diagnose(model)

    def report(lines: list[str]) -> int:
        progress.end()
        return print_session(diagnosis, plain, shown, lines)

    code = write_first(write_outputs(model, request, diagnosis), report)
    if damage is None:
        return code
    raise InputError(f"{damage}; the part before it is shown, the rest is left out")


def print_result(result: Result, given: Container[str]) -> None:
    if "json" in given:
        findings = cleaned([finding_json(one) for one in findings_about(result)])
        print_json(result.as_json() | {"findings": findings}, given)
        return
    limited = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if limited else _UNLIMITED
    sys.stdout.write(text_of(result, width, plain=is_plain(given)))


def recording_line(path: Path, stopped: str | None) -> str:
    return f"recorded in {path}" if stopped is None else f"RECORDING INCOMPLETE ({stopped}): {path}"


def print_outcome(feed: Feed, code: int, recorded: Sequence[str] = ()) -> None:
    """Print the verdict on a session once its screen is gone, and lines about its recording, on standard error."""
    sentence = feed.sentence or sentence_of(diagnose(feed.model))
    interrupted = "interrupted" if code == INTERRUPTED else ""
    # The terminal may be gone.
    with contextlib.suppress(OSError):
        print(*filter(None, (sentence, interrupted, *recorded)), sep="\n", file=sys.stderr)


def output_files(
    model: Model, request: Request, found: Diagnosis | None = None
) -> list[tuple[Path, Callable[[Path], int | None]]]:
    """Return the files of a request, with what writes them; a diagnosis is made once a file needs it."""
    diagnosis = cache(lambda: found or diagnose(model))

    def writer(name: str) -> Callable[[Path], int | None]:
        if name in MODEL_WRITERS:
            return partial(MODEL_WRITERS[name], model)
        if name == "prom":
            return lambda path: write_text(path, metrics_text(diagnosis(), request.exposition), MODE)
        return lambda path: write_text(path, DIAGNOSIS_TEXTS[name](diagnosis(), path))

    return [(path, writer(name)) for name, path in request.outputs.items()]


def write_outputs(model: Model, request: Request, found: Diagnosis | None = None) -> Iterator[str]:
    return write_each(output_files(model, request, found))
