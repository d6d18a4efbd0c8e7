"""Outputs as they come out of mails, logs, terminals and editors are recognised: our samples, and real ones."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fabtui.importers.result import recognised
from fabtui.importers.sources import sources

from .places import REAL, SAMPLES, index, start_of


def _lines(change: Callable[[str], str], text: str) -> str:
    return "\n".join(map(change, text.split("\n")))


#: What happens to a text. Prefixes one by one are in `test_line_prefixes`.
VARIANTS: dict[str, Callable[[str], str]] = {
    "lower case": str.lower,
    "cut off": lambda text: text[: len(text) * 6 // 10],
    "windows": lambda text: text.replace("\n", "\r\n"),
    "blank lines between": lambda text: text.replace("\n", "\n\n"),
    "long lines wrapped": lambda text: _lines(
        lambda line: "\n".join(line[at : at + 132] for at in range(0, len(line), 132)), text
    ),
    "colours": functools.partial(_lines, lambda line: f"\x1b[32m{line}\x1b[0m"),
    "a log, quoted": functools.partial(_lines, lambda line: f"> 2026-05-01 12:00:00,123 - INFO - [rank0]: {line}"),
}
#: Files that a variant hides, and why. A text of few lines may keep nothing that identifies it.
SHORT = 13
HIDDEN = {
    ("lower case", "nvidia-smi-topo-m/2xa100-nv4-1nic-cut-line.txt"): "a heading alone",
    ("lower case", "ibsim/ib_write_bw.txt"): "a complaint alone",
}


def _files() -> dict[str, Path]:
    """Return our samples, and the real ones where they are, by name."""
    ours = {str(path.relative_to(SAMPLES)): path for path in sorted(SAMPLES.rglob("*.*"))}
    found = {name: path for name, path in ours.items() if path.suffix == ".txt"}
    return found | {row["file"]: REAL / row["file"] for row in index()}


#: Every variant of each file under ``nightly``; else each file with a third of the variants, all variants with a third
#: of the files.
STEP = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 3


@functools.cache
def _texts() -> dict[str, tuple[str, str]]:
    """Return format and text of each file that is recognised as it is; JSON does not consist of lines."""
    found = {}
    for name, path in _files().items():
        (source,) = sources([str(path)])
        text = start_of(source.text)
        form = recognised(text).guess.format
        if form is not None and not text.lstrip().startswith(("{", "[")):
            found[name] = form.name, text
    return found


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_recognised(variant: str, record_property: Callable[[str, object], None]) -> None:
    hidden = {}
    chosen = dict(list(_texts().items())[list(VARIANTS).index(variant) % STEP :: STEP])
    for name, (kind, text) in chosen.items():
        form = recognised(VARIANTS[variant](text)).guess.format
        if form is None or form.name != kind:
            hidden[name] = None if form is None else form.name
    total = len(chosen)
    record_property("recognised", f"{total - len(hidden)} of {total}")
    print(f"{variant}: {total - len(hidden)} of {total} recognised")
    assert total > 100 / STEP
    short = {name for name in hidden if variant == "cut off" and _texts()[name][1].count("\n") < SHORT}
    assert {name: kind for name, kind in hidden.items() if name not in short and (variant, name) not in HIDDEN} == {}


def test_lost_capitals_are_reported() -> None:
    text = (SAMPLES / "ibsim/ibstat_n061.txt").read_text()
    found = recognised(text.lower()).reading
    assert found is not None
    assert "the text has no capitals, unlike output of ibstat" in found.warnings[0]
    whole = recognised(text).reading
    assert whole is not None
    assert not any("capitals" in warning for warning in whole.warnings)


def test_a_text_that_never_had_capitals_is_no_output() -> None:
    for text in ("n060\nn061\n", "all work and no play\n" * 20, "rank 0: hello\n" * 8, "job 12 is done\n"):
        assert recognised(text).guess.format is None, text
