"""Texts from files, folders, packed files and standard input."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fabtui.diagnosis.running_job.plain_pickle import READER, NotPlain, is_pickle, json_of
from fabtui.errors import InputError
from fabtui.importers.formats.pair_lists import FILE
from fabtui.importers.packed import contents
from fabtui.paths import open_unblocked, user_path

#: How many files of a folder are read.
MOST_FILES = 4096
#: How long (s) a pipe may stay empty.
PIPE_PATIENCE = 30.0


class Source(NamedTuple):
    """A text and where it is from."""

    name: str  #: What users call it: a path, or ``-``.
    text: str  #: What it holds, bytes that are not UTF-8 shown as U+FFFD.
    cut: str | None = None  #: Why not all of it is there, or None.


def sources(names: Sequence[str]) -> Iterator[Source]:
    """Yield the text of each file; a folder gives its files, and a set of ``p2p-test-S-R-JOB.out`` is one text.

    Raises:
        InputError: A file cannot be read, or a folder has none.
    """
    paths: list[Path | None] = []
    stdin = False
    for name in names:
        if name == "-":
            if stdin:
                raise InputError("standard input (-) can be read only once")
            stdin = True
            paths.append(None)
            continue
        path = user_path(name)
        paths += list(_files_in(path)) if _is_folder(path) else [path]
    runs: dict[Path, list[Path]] = {}
    for found in paths:
        if found is not None and FILE.fullmatch(found.name):
            runs.setdefault(found.parent, []).append(found)
    for found in paths:
        if found is None:
            yield from _texts("-", sys.stdin.buffer)
        elif found.parent in runs:
            if FILE.fullmatch(found.name):
                together = runs.pop(found.parent)
                yield _joined(together, str(found if len(together) == 1 else found.parent))
            else:
                yield from _read(found)
        elif not FILE.fullmatch(found.name):
            yield from _read(found)


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and the folders in it, by name, without hidden ones and without following links."""
    found: list[Path] = []
    try:
        for root, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = Path(root, name)
                if not name.startswith(".") and path.is_file():
                    found.append(path)
            if len(found) > MOST_FILES:
                raise InputError(f"{folder}: more than {MOST_FILES} files; name the ones to read")
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from None
    if not found:
        raise InputError(f"{folder}: no files in it")
    yield from found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        # Errors of the name are reported when it is opened.
        return False


def _raise(error: OSError) -> None:
    raise error


def _read(path: Path) -> Iterator[Source]:
    try:
        mode = path.stat().st_mode
        # A pipe made by the shell, <(ssh n060 ibstat), is as good as a file.
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            raise InputError(f"{path}: not a file")
        descriptor = open_unblocked(path)
        with os.fdopen(descriptor, "rb") as file:
            _wait_for_data(path, descriptor)
            yield from _texts(str(path), file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read {path}: {reason}") from None


def _texts(name: str, file: BinaryIO) -> Iterator[Source]:
    try:
        for content in contents(file):
            called = f"{name}/{content.member}" if content.member else name
            yield Source(called, *_decoded(content.data, content.cut))
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _wait_for_data(path: Path, descriptor: int) -> None:
    """Wait for the first data of a pipe; the rest of it is waited for as long as it takes."""
    os.set_blocking(descriptor, True)
    if not select.select([descriptor], [], [], PIPE_PATIENCE)[0]:
        raise InputError(f"{path}: nothing was written to this pipe for {PIPE_PATIENCE:.0f} s")


def _joined(paths: list[Path], name: str) -> Source:
    """Return several files as one text, each with its name before it; ``.err`` files lie beside them."""
    every = sorted({*paths, *(beside for path in paths if (beside := path.with_suffix(".err")).is_file())})
    pieces = []
    cut = None
    for path in every:
        for source in _read(path):
            cut = cut or source.cut
            pieces.append(f"==> {path.name} <==\n{source.text}\n")
    return Source(name, "".join(pieces), cut)


def _decoded(data: bytes, cut: str | None) -> tuple[str, str | None]:
    if is_pickle(data):
        try:
            # Plain values alone, so that JSON can hold them.
            return _json_of_pickle(data), cut
        except NotPlain as error:
            # Its bytes are not lines: what looks like words there is no log.
            return "", cut or str(error)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace"), cut
    return data.decode("utf-8", "replace").removeprefix("\ufeff"), cut


def _json_of_pickle(data: bytes) -> str:
    """Return the value of a pickle as JSON text; raise `NotPlain` if it holds more or takes too much."""
    done = subprocess.run(READER, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return json_of(done.stdout, done.returncode)
