"""``fabtui config``: the settings file."""

from __future__ import annotations

import argparse
import os
import sys

from fabtui.config.file import ConfigFile, Found, Problem, config_path, merged, read_config, template
from fabtui.config.options import OptionSpec, settings
from fabtui.errors import InputError
from fabtui.presentation.text_table import aligned
from fabtui.sanitize import one_line
from fabtui.screen.app import FabricApp
from fabtui.screen.keymap import check_keys, key_rows
from fabtui.screen.themes.ramps import theme_problem

HELP = """\
Show the settings in effect, check the settings file, create a new one, or print its path.

examples:
  fabtui config init                       write a settings file with every setting commented out
  fabtui config show --theme light         print the settings in effect and the source of each
  fabtui config validate                   exit code 0, or 2 and a line for each problem

Arguments override environment variables (FABTUI_TIMEOUT=20), which override the file, which overrides the defaults.
The file is --config, FABTUI_CONFIG or your own (fabtui config path). Invalid settings are reported and ignored.
"""


def execute(args: argparse.Namespace) -> int:
    """Show, validate, create or locate the settings file; return the exit code."""
    if args.action == "path":
        print(config_path(args))
    else:
        {"show": _show, "validate": _validate, "init": _init}[args.action](args)
    return 0


def _show(args: argparse.Namespace) -> None:
    config = read_config(args)
    print(f"settings file: {config.path}" + ("" if config.present else " (missing; fabtui config init creates it)"))
    rows = [[name, one_line(value, 100), source] for name, value, source in _settings(args, config)]
    rows += [
        [f'keys."{name}"', one_line(str(found.value), 100), _source(config, found)]
        for name, found in config.keys.items()
    ]
    print("\n".join(aligned(rows, left=(0, 1, 2))))
    for line in _problems(config):
        print(f"ignored: {line}")


def _settings(args: argparse.Namespace, config: ConfigFile) -> list[tuple[str, str, str]]:
    given = vars(args)
    rows = []
    for spec in settings().values():
        found = config.values.get(spec.key)
        if spec.kind == "variables" and spec.argument in given and found is not None:
            value = merged(given, config)[spec.argument]
            rows.append((spec.key, _text(spec, value), f"command line and {_source(config, found)}"))
        elif spec.table in ("screen", "session") and spec.argument in given:
            rows.append((spec.key, _text(spec, given[spec.argument]), "command line"))
        elif spec.key == "recording.keep" and {"record", "no_record"} & set(given):
            rows.append((spec.key, _text(spec, "no_record" not in given), "command line"))
        elif found is not None:
            rows.append((spec.key, _text(spec, found.value), _source(config, found)))
        else:
            rows.append((spec.key, spec.default or "none", "default"))
    return rows


def _text(spec: OptionSpec, value: object) -> str:
    if spec.kind == "variables" and isinstance(value, list):
        # Names only: this output ends up in bug reports, and a value may be a secret.
        return ",".join(f"{text.partition('=')[0]}=..." for text in value)
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _source(config: ConfigFile, found: Found) -> str:
    return found.variable or (f"{config.path.name}:{found.line}" if found.line else config.path.name)


def _problems(config: ConfigFile) -> list[str]:
    problems = list(config.problems)
    keys = {name: str(one.value) for name, one in config.keys.items()}
    _, wrong_keys = check_keys(keys, FabricApp)
    problems += [Problem(config.keys[name].line, f'keys."{name}": {text}') for name, text in wrong_keys]
    theme = config.values.get("screen.theme")
    if theme is not None and (wrong := theme_problem(theme.value)) is not None:
        problems.append(Problem(theme.line, f"screen.theme: {wrong}", theme.variable))
    return [config.describe(problem) for problem in sorted(problems, key=lambda problem: problem.line or 0)]


def _validate(args: argparse.Namespace) -> None:
    config = read_config(args)
    *others, last = _problems(config) or [""]
    for line in others:
        print(f"fabtui: error: {line}", file=sys.stderr)
    if last:
        raise InputError(last)
    print(f"{config.path} " + ("is valid" if config.present else "does not exist, so the defaults apply"))


def _init(args: argparse.Namespace) -> None:
    path = config_path(args)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Exclusive: a file that appears at the same time is not overwritten either.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise InputError(f"{path} already exists and is not overwritten") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(template([(row.id, row.keys, row.description) for row in key_rows(FabricApp)]))
    print(f"wrote {path}; every setting in it is commented out")
