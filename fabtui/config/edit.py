"""Changes of single settings: their values as texts, and the settings file with them, which keeps all else."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fabtui.config.file import ASSIGNMENT, BOOLEANS, DEFAULT, HEADER, MAX_FILE, checked, key_parts
from fabtui.config.options import OptionSpec, settings
from fabtui.config.values import nearest
from fabtui.errors import InputError
from fabtui.export.atomic_write import write_bytes
from fabtui.paths import user_path


def setting_named(name: str) -> OptionSpec:
    """Return a setting by its name, with or without its table.

    Raises:
        InputError: There is none.
    """
    known = settings()
    setting = known.get(name) or next((spec for spec in known.values() if spec.name == name), None)
    if setting is None:
        near = nearest(name, list(known)) or nearest(name, [spec.name for spec in known.values()])
        raise InputError(f"there is no setting {name[:60]!r}{near or '; fabtui config show lists them'}")
    return setting


def value_of(spec: OptionSpec, text: str) -> Any:
    """Return the value in a settings file that a text stands for; None for the default.

    Raises:
        InputError: The setting does not take it.
    """
    value: Any = text
    if text == DEFAULT:
        return None
    if spec.kind == "switch":
        value = BOOLEANS.get(text.lower(), text)
    elif spec.kind == "list":
        value = [part.strip() for part in text.split(",")]
    elif spec.kind == "variables":
        # Without a sign, a name has no value, which no variable takes.
        parts = [part.partition("=") for part in text.split(",")]
        value = {name.strip(): one if sign else False for name, sign, one in parts}
    elif spec.kind == "number":
        with_point = re.fullmatch(r"\d+(\.\d+)?", text)
        value = (float(text) if with_point[1] else int(text)) if with_point else text
    try:
        checked(spec, value)
    except InputError as error:
        raise InputError(f"{spec.key}: {error}") from None
    return value


def _literal(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_literal(one)}' for name, one in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    # Strings are printable, so JSON's are TOML's as well.
    return json.dumps(value, ensure_ascii=False)


def edited(text: str, spec: OptionSpec, value: object) -> str:
    """Return a settings file with one value changed, and commented out if it is None; all else in it stays.

    Raises:
        InputError: The file is not TOML, or the value spans several lines.
    """
    try:
        before = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"is not TOML, so it cannot be changed: {error}") from None
    wanted = copy.deepcopy(before)
    table = wanted.setdefault(spec.table, {}) if value is not None else wanted.get(spec.table, {})
    if isinstance(table, dict):
        table.pop(spec.name, None)
        table.update({} if value is None else {spec.name: value})
    lines = text.splitlines(keepends=True)
    _change(lines, spec, value, "\r\n" if "\r\n" in text else "\n")
    changed = "".join(lines)
    try:
        if tomllib.loads(changed) == wanted:
            return changed
    except tomllib.TOMLDecodeError:
        pass
    raise InputError(f"{spec.key} is written there in a form that fabtui cannot edit; change it by hand")


def _change(lines: list[str], spec: OptionSpec, value: object, end: str) -> None:
    """Change the line of a setting: the one in effect, else the one that is commented out, else a new one."""
    line = f"{spec.name} = {_literal(value)}"
    header = commented = None
    table: tuple[str, ...] = ()
    for at, found in enumerate(lines):
        if (head := re.fullmatch(HEADER, found.rstrip())) is not None:
            table = key_parts(head[1])
            header = at if table == (spec.table,) else header
        elif (assigned := re.match(ASSIGNMENT, found)) is not None:
            if (*table, *key_parts(assigned[1])) == (spec.table, spec.name):
                lines[at] = f"#{found}" if value is None else f"{assigned[0]} {_literal(value)}{_rest_of(found)}"
                return
        elif table == (spec.table,) and re.match(rf"#\s*{re.escape(spec.name)}\s*=", found) and commented is None:
            commented = at
    if value is None:
        return
    if commented is not None:
        lines[commented] = f"{line}{end}"
    elif header is not None:
        lines[header] = f"{lines[header].rstrip()}{end}{line}{end}"
    else:
        gap = end if lines and lines[-1].endswith("\n") else end * 2 if lines else ""
        lines.append(f"{gap}[{spec.table}]{end}{line}{end}")


def _rest_of(line: str) -> str:
    """Return what follows the value of a line: its comment and its end."""
    for at in (found.start() for found in re.finditer(r"(?<!\s)\s*(#|$)", line)):
        try:
            tomllib.loads(line[:at])
        except tomllib.TOMLDecodeError:
            continue
        return line[at:]
    return ""


def write_settings(path: Path, texts: Mapping[str, str], fresh: Callable[[], str]) -> None:
    """Write settings into a file, a text by table and name; ``fresh`` is the content of a file that is not there yet.

    Raises:
        InputError: The file cannot be read, changed or written.
    """
    path = user_path(path)
    try:
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE + 1)
            if len(data) > MAX_FILE:
                raise InputError(f"{path} is larger than 1 MiB, so it is not a settings file")
            text = data.decode()
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = fresh()
        for key, wanted in texts.items():
            text = edited(text, settings()[key], value_of(settings()[key], wanted))
        write_bytes(path, text.encode())
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8, so it cannot be changed") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
