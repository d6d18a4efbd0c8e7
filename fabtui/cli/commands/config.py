"""``fabtui config``: the settings file."""

from __future__ import annotations

import argparse
import os
import sys

from fabtui.config.file import (
    ConfigFile,
    Problem,
    config_path,
    read_config,
    setting_named,
    settings_in_effect,
    source_of,
    value_of,
    write_settings,
)
from fabtui.errors import InputError
from fabtui.presentation.wrapping import aligned
from fabtui.sanitize import one_line
from fabtui.screen.app import FabricApp
from fabtui.screen.keymap import check_keys, fresh_settings
from fabtui.screen.themes import theme_problem

HELP = """\
Show the settings in effect, check the settings file, create a new one, change a setting in it, or print its path.

examples:
  fabtui config init                       write a settings file with every setting commented out
  fabtui config show --theme light         print the settings in effect and the source of each
  fabtui config set theme nord             write one setting; the word default comments it out
  fabtui config validate                   exit code 0, or 2 and a line for each problem

Arguments override environment variables (FABTUI_TIMEOUT=20), which override the file, which overrides the defaults.
The file is --config, FABTUI_CONFIG or your own (fabtui config path). Invalid settings are reported and ignored.
"""


def execute(args: argparse.Namespace) -> int:
    if args.action != "set" and getattr(args, "change", None):
        raise InputError(f"config {args.action} takes no further words; config set KEY VALUE changes a setting")
    if args.action == "path":
        print(config_path(args))
    else:
        {"show": _show, "validate": _validate, "init": _init, "set": _set}[args.action](args)
    return 0


def _show(args: argparse.Namespace) -> None:
    config = read_config(args)
    print(f"settings file: {config.path}" + ("" if config.present else " (missing; fabtui config init creates it)"))
    rows = [[key, one_line(value, 100), source] for key, value, source in settings_in_effect(vars(args), config)]
    for name, key in config.keys.items():
        rows.append([f'keys."{name}"', one_line(str(key.value), 100), source_of(config, key)])
    print("\n".join(aligned(rows, left=(0, 1, 2))))
    for line in _problems(config):
        print(f"ignored: {line}")


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
        file.write(fresh_settings(FabricApp))
    print(f"wrote {path}; every setting in it is commented out")


def _set(args: argparse.Namespace) -> None:
    if len(words := getattr(args, "change", [])) != 2:
        raise InputError("config set takes a setting and its value: fabtui config set theme nord")
    spec = setting_named(words[0])
    value = value_of(spec, words[1])
    if spec.key == "screen.theme" and value is not None and (wrong := theme_problem(value)) is not None:
        raise InputError(wrong)
    path = config_path(args)
    write_settings(path, {spec.key: words[1]}, lambda: fresh_settings(FabricApp))
    print(f"{path}: {spec.key} = {words[1]}")
