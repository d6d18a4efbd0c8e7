"""``fabtui accept``: a cluster against a list of items with limits, as a page that both sides can sign."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fabtui.atomic_write import check_writable, write_text
from fabtui.cli.commands.run import interrupted_code, played
from fabtui.cli.options_from_args import print_problems, request_from, resumed_request
from fabtui.cli.outputs import reading_progress
from fabtui.cli.printing import is_plain, print_lines, write_each
from fabtui.config.file import read_config
from fabtui.config.options import options_of
from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.errors import InputError
from fabtui.export.junit import acceptance_cases, junit_text
from fabtui.importers.session import replayed
from fabtui.paths import user_path
from fabtui.presentation.acceptance import ItemOutcome, JudgedItem, Profile, code_of, counts, judge, read_profile
from fabtui.report.contents import document
from fabtui.report.document import Document, Items, Section, check_suffix
from fabtui.report.markdown import document_text
from fabtui.report.progress import Progress
from fabtui.report.text import text
from fabtui.sanitize import one_line
from fabtui.session.options import SessionOptions
from fabtui.session.resumption import NothingLeft, resumption

HELP = """\
Accept a cluster: test it by a list of items with limits, and write the page and the files that prove it.

examples:
  fabtui accept --profile clustermax --nodes @new --record new.jsonl.gz --report new.html
  fabtui accept --profile slurm-partition --nodes @gpu --record gpu.jsonl.gz --junit gpu.xml
  fabtui accept --profile ours.toml --nodes @new --record new.jsonl.gz    again, to continue after an interruption
  fabtui accept --profile clustermax new.jsonl.gz --report new.html       of a recording; no node is asked

Each item passes, fails, is not tested, or is not covered, with its evidence. The recording is also the baseline for
later: fabtui report LATER --baseline new.jsonl.gz, fabtui diff new.jsonl.gz LATER. What has a result is not tested
again. docs/acceptance.md explains profiles.

exit codes: 0 every item that is covered passes; 1 one fails; 2 bad usage or input; 3 one was not tested;
130 interrupted (run the same command to continue)
"""

#: Outcomes in the order of the page.
_ORDER = (ItemOutcome.FAIL, ItemOutcome.NOT_TESTED, ItemOutcome.PASS, ItemOutcome.NOT_COVERED)


def execute(args: argparse.Namespace) -> int:
    given = vars(args)
    if "profile" not in given:
        raise InputError("accept needs --profile FILE, or the name of one that ships: clustermax, slurm-partition")
    profile = read_profile(given["profile"])
    files: dict[str, Path] = {name: user_path(given[name]).absolute() for name in ("report", "junit") if name in given}
    for name, path in files.items():
        check_writable(path, f"--{name}")
    if "report" in files:
        check_suffix(files["report"], "--report")
    if "file" not in given and "record" not in given:
        raise InputError("accept needs --record FILE, the proof, and what an interrupted one continues from")
    record = user_path(given.get("file") or given["record"]).absolute()
    return ("file" not in given and _tested(args, profile, record)) or _finish(profile, record, files, given)


def _tested(args: argparse.Namespace, profile: Profile, record: Path) -> int:
    """Test what the recording has no results of; return the exit code of an interruption, or 0."""
    config = read_config(args)
    print_problems(config)
    # A session that continues writes a new recording, which begins with a copy: the larger one has more.
    onward = record.with_name(f"onward-{record.name}")
    known = [path for path in (record, onward) if path.exists() and path.stat().st_size]
    if not known:
        words = {**_run_options(profile), **vars(args)}
        return _played(request_from(argparse.Namespace(**words), config).options, args)
    if max(known, key=lambda path: path.stat().st_size) == onward:
        os.replace(onward, record)
    try:
        rest = resumption(record)
    except NothingLeft:
        return 0
    print(f"{record}: {rest.left} of {rest.pairs} pairs are left to test", file=sys.stderr)
    given = {**vars(args), "record": str(onward)}
    code = _played(resumed_request(given, config, record, rest.options).options, args)
    if onward.exists():
        os.replace(onward, record)
    return code


def _run_options(profile: Profile) -> dict[str, object]:
    """Return the options of a profile as arguments. It may come from a vendor: it chooses tests, and nothing else."""
    specs = {spec.name: spec for spec in options_of("run") if spec.group in ("tests", "pairs", "collectives")}
    if strangers := profile.run.keys() - specs.keys():
        raise InputError(f"--profile: [run] takes options of tests, not {min(strangers)!r}")
    return {specs[name].argument: [text] if specs[name].kind == "list" else text for name, text in profile.run.items()}


def _played(options: SessionOptions, args: argparse.Namespace) -> int:
    if options.origin:
        print(options.origin, file=sys.stderr)
    _, interrupted = asyncio.run(played(options, Progress(sys.stderr, quiet="quiet" in args)))
    return 0 if interrupted is None else interrupted_code(interrupted)


def _finish(profile: Profile, record: Path, files: dict[str, Path], given: dict[str, object]) -> int:
    progress = reading_progress(record)
    model, damage = replayed(record, progress)
    progress.step("judging the items")
    found = diagnose(model)
    judged = judge(profile, found)
    page = page_of(profile, judged, found, [record.name], [str(damage)] if damage else [])
    progress.end()
    texts = {"report": lambda path: document_text(page, path)}
    texts["junit"] = lambda path: junit_text(found, acceptance_cases(judged))
    lines = list(write_each([(path, partial(_write, texts[name])) for name, path in files.items()]))
    sys.stdout.write(text([*items_of(profile, judged).blocks], None, is_plain(given)) + "\n" + page.verdict + "\n")
    print_lines(lines)
    return page.code


def _write(text_of: Callable[[Path], str], path: Path) -> None:
    write_text(path, text_of(path))


def page_of(
    profile: Profile, judged: list[JudgedItem], found: Diagnosis, sources: list[str], warnings: list[str]
) -> Document:
    """Return the report of a session with the items first."""
    page = document(found, sources, warnings=warnings)
    verdict = f"{one_line(profile.title, 100)}: {', '.join(counts(judged))} of {len(judged)} items"
    state = {0: "ok", 1: "bad"}.get(code_of(judged), "unknown")
    return page._replace(
        title=f"Acceptance: {one_line(profile.title, 100)}",
        verdict=verdict,
        state=state,
        summary=[page.verdict, *page.summary],
        sections=[items_of(profile, judged), *page.sections],
        code=code_of(judged),
    )


def items_of(profile: Profile, judged: list[JudgedItem]) -> Section:
    """Return the section with the items of each outcome, and where they are from."""
    blocks = []
    for outcome in _ORDER:
        if mine := [one for one in judged if one.outcome is outcome]:
            lines = [f"{one.item.id}: {one.item.title}: {'; '.join(one.evidence)}" for one in mine]
            blocks.append(Items(f"{outcome} ({len(mine)})", [one_line(line, 600) for line in lines]))
    blocks += [Items("source", [one_line(profile.source, 300)])] if profile.source else []
    return Section("acceptance", "Acceptance", blocks)
