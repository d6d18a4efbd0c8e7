"""``fabtui config``: the user's settings file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from fabtui.cli.arguments import (
    add_config_argument,
    add_display_arguments,
    add_node_arguments,
    add_output_arguments,
    add_test_arguments,
)
from fabtui.errors import InputError

if TYPE_CHECKING:
    from fabtui.config.file import ConfigFile
    from fabtui.config.schema import Setting

_EXAMPLES = """\
examples:
  fabtui config init                       write a commented file, all of it commented out
  fabtui config show --theme light         what holds, and where each value comes from
  fabtui config validate                   exit code 0, or 2 and a line for each thing that is wrong

The command line beats the file, and the file beats the defaults. The file is that of --config, of FABTUI_CONFIG, or
your own (fabtui config path). What is wrong in it is told and left out; the rest of it holds.
"""


def add_command(commands: Any) -> None:
    """Add the command to the sub-parsers of the command line."""
    parser = commands.add_parser(
        "config",
        help="the settings file: show, validate, init, path",
        description="The settings file: what holds, whether it is right, a new one, where it lies.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("what", choices=tuple(_WHAT), help="what to do")
    add_node_arguments(parser)
    add_test_arguments(parser)
    add_output_arguments(parser)
    add_display_arguments(parser)
    add_config_argument(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Do it; returns the exit code.

    Raises:
        InputError: The file is wrong, or cannot be read or written.
    """
    return _WHAT[args.what](args)


def _path(args: argparse.Namespace) -> int:
    from fabtui.config.file import config_path

    print(config_path(args))
    return 0


def _show(args: argparse.Namespace) -> int:
    from fabtui.config.file import read_config
    from fabtui.report.tables import aligned
    from fabtui.sanitize import one_line

    config = read_config(args)
    print(f"settings file: {config.path}" + ("" if config.present else " (not there; fabtui config init writes one)"))
    rows = [[name, one_line(value, 100), source] for name, value, source in _settings(args, config)]
    rows += [
        [f'keys."{name}"', one_line(str(found.value), 100), _place(config, found.line)]
        for name, found in config.keys.items()
    ]
    print("\n".join(aligned(rows, left=(0, 1, 2))))
    for line in _problems(config):
        print(f"left out: {line}")
    return 0


def _settings(args: argparse.Namespace, config: ConfigFile) -> list[tuple[str, str, str]]:
    """Return name, value and source of every setting."""
    from fabtui.config.schema import SETTINGS

    given = vars(args)
    rows = []
    for setting in SETTINGS:
        found = config.values.get(setting.name)
        if setting.table in ("screen", "session") and setting.argument in given:
            rows.append((setting.name, _text(setting, given[setting.argument]), "command line"))
        elif setting.name == "recording.keep" and {"record", "no_record"} & set(given):
            rows.append((setting.name, _text(setting, "no_record" not in given), "command line"))
        elif found is not None:
            rows.append((setting.name, _text(setting, found.value), _place(config, found.line)))
        else:
            rows.append((setting.name, setting.default, "default"))
    return rows


def _text(setting: Setting, value: object) -> str:
    if setting.kind == "variables" and isinstance(value, list):
        # Names alone: what is printed here ends up in bug reports, and a value may be a secret.
        return ",".join(f"{text.partition('=')[0]}=..." for text in value)
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _place(config: ConfigFile, line: int | None) -> str:
    return f"{config.path.name}:{line}" if line else config.path.name


def _problems(config: ConfigFile) -> list[str]:
    """Return all that is wrong, the keys included, in the order of the lines."""
    from fabtui.config.file import Problem
    from fabtui.screen.keymap import check_keys
    from fabtui.screen.themes.ramps import theme_problem

    found = list(config.problems)
    keys = {name: str(one.value) for name, one in config.keys.items()}
    found += [Problem(config.keys[name].line, f'keys."{name}": {text}') for name, text in check_keys(keys)[1]]
    theme = config.values.get("screen.theme")
    if theme is not None and (wrong := theme_problem(theme.value)) is not None:
        found.append(Problem(theme.line, f"screen.theme: {wrong}"))
    return [config.told(problem) for problem in sorted(found, key=lambda problem: problem.line or 0)]


def _validate(args: argparse.Namespace) -> int:
    from fabtui.config.file import read_config

    config = read_config(args)
    problems = _problems(config)
    if problems:
        *others, last = problems
        for line in others:
            print(f"fabtui: error: {line}", file=sys.stderr)
        raise InputError(last)
    state = "is right" if config.present else "is not there, so the defaults hold"
    print(f"{config.path} {state}")
    return 0


def _init(args: argparse.Namespace) -> int:
    import os

    from fabtui.config.file import config_path

    path = config_path(args)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Exclusive, so that not even a file that comes between is written over.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise InputError(f"{path} is there already, and is not overwritten") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(commented())
    print(f"wrote {path}; everything in it is commented out")
    return 0


def commented() -> str:
    """Return a settings file that names every setting and every key, all of it commented out."""
    from fabtui.config.schema import SETTINGS
    from fabtui.screen.keymap import default_keys

    lines = [
        "# Settings of fabtui. The command line beats this file, and this file beats the defaults.",
        "# fabtui config validate says what is wrong in it; fabtui config show, what holds.",
    ]
    table = ""
    for setting in SETTINGS:
        if setting.table != table:
            table = setting.table
            lines += ["", f"[{table}]"]
        choices = f": {', '.join(setting.choices)}" if setting.choices else ""
        lines += [f"# {setting.words}{choices} (default: {setting.default})", f"#{setting.key} = {setting.example}"]
    lines += ["", "# Keys by what they do; several are separated by commas. These are the defaults.", "[keys]"]
    lines += [f'#"{name}" = "{keys}"  # {words}' for name, keys, words in default_keys()]
    return "\n".join(lines) + "\n"


_WHAT = {"show": _show, "validate": _validate, "init": _init, "path": _path}
