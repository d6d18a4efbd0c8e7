"""The settings file and the environment: read, check, change and merge them with the arguments."""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.atomic_write import write_bytes
from fabtui.config.options import TABLES, OptionSpec, settings
from fabtui.config.values import VARIABLE, names, nearest
from fabtui.errors import InputError
from fabtui.paths import UnsafeFileError, config_folder, open_strictly, user_path
from fabtui.sanitize import one_line

#: Maximum size of a settings file (bytes).
MAX_FILE = 1 << 20
_MAX_TEXT = 1000
_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
#: Line with the name of a table, and begin of a line that sets a key.
HEADER = r"\s*\[\s*(?=\S)([^\[\]]+?)(?<!\s)\s*\]\s*(?:#.*)?"
ASSIGNMENT = rf"\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*="
#: Words of a switch.
BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
#: Word that stands for the default of a setting.
DEFAULT = "default"
#: A lab brings its own connection.
_NOT_IN_A_LAB = ("transport", "ssh_config", "host_key_policy", "remote_python")
_KINDS = {bool: "a switch", int: "a number", float: "a number", str: "a string", list: "a list", dict: "a table"}


class Problem(NamedTuple):
    """An invalid part of the settings file (its line, from 1, if known) or the environment, and what to do about it."""

    line: int | None
    text: str
    variable: str = ""


class Found(NamedTuple):
    """The value of a setting, in the form of the command line, and its line in the file or its variable."""

    value: Any
    line: int | None
    variable: str = ""


@dataclass(slots=True)
class ConfigFile:
    """The settings of the file and the environment."""

    path: Path  #: Path of the file.
    present: bool = False  #: Whether the file exists.
    values: dict[str, Found] = field(default_factory=dict)  #: The valid settings by table and key.
    #: The keys of bindings by the ids of the bindings; not checked yet.
    keys: dict[str, Found] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)  #: The invalid settings, which are ignored.

    def enabled(self, name: str) -> bool:
        setting = self.values.get(name)
        return setting is not None and setting.value is True

    def describe(self, problem: Problem) -> str:
        place = problem.variable or (f"{self.path}:{problem.line}" if problem.line else str(self.path))
        return one_line(f"{place}: {problem.text}", 400)


def config_path(args: argparse.Namespace | None = None) -> Path:
    """Return the path of the settings file: ``--config``, ``FABTUI_CONFIG`` or the user's own."""
    given = getattr(args, "config", None) or os.environ.get("FABTUI_CONFIG")
    return user_path(given) if given else config_folder() / "config.toml"


def read_config(args: argparse.Namespace | None = None) -> ConfigFile:
    """Read the settings file and the environment. Invalid settings are reported in the result and ignored.

    So is the user's own file if others can change it; one that is named is taken from anywhere, as ``ssh -F`` does.

    Raises:
        InputError: The user named a file that cannot be read.
    """
    path = config_path(args)
    config = ConfigFile(path)
    named = path != config_folder() / "config.toml"
    try:
        with open(path if named else open_strictly(path), "rb") as file:
            data = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        if named:
            raise InputError(f"{path}: there is no such settings file") from None
    except OSError as error:
        if named:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        config.present = True
        reason = str(error) if isinstance(error, UnsafeFileError) else f"cannot be read: {error.strerror}"
        config.problems.append(Problem(None, reason))
    else:
        config.present = True
        _parse(config, data)
    read_environment(config, os.environ)
    return config


def read_environment(config: ConfigFile, environment: Mapping[str, str]) -> None:
    """Add the settings of environment variables such as ``FABTUI_TIMEOUT``; they override the file."""
    for spec in settings().values():
        text = environment.get(spec.variable) if spec.variable else None
        if not text:
            continue
        value: Any = BOOLEANS.get(text.lower(), text) if spec.kind == "switch" else text
        try:
            config.values[spec.key] = Found(checked(spec, value), None, spec.variable)
        except InputError as error:
            config.problems.append(Problem(None, _without(value, str(error)), spec.variable))


def _parse(config: ConfigFile, data: bytes) -> None:
    if len(data) > MAX_FILE:
        config.problems.append(Problem(None, "is larger than 1 MiB, so it is not a settings file"))
        return
    try:
        text = data.decode()
        tables = tomllib.loads(text)
        # Python refuses to write numbers of thousands of digits: a hexadecimal one has been read.
        repr(tables)
    except UnicodeDecodeError as error:
        config.problems.append(Problem(data.count(b"\n", 0, error.start) + 1, "is not UTF-8"))
        return
    except (ValueError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        at = int(line[1]) if line else text.count("\n") + 1
        config.problems.append(Problem(at, f"is not TOML: {error}"))
        return
    lines = _lines(text)
    known = settings()
    for name, table in tables.items():
        line_of_table = lines.get((name,))
        if name not in TABLES:
            config.problems.append(Problem(line_of_table, _unknown(name, table, known)))
        elif not isinstance(table, dict):
            problem = f"{name} is a table; expected [{name}] on a line of its own"
            config.problems.append(Problem(line_of_table, problem))
        else:
            for key, value in _flat(table) if name == "keys" else table.items():
                line_of_key = lines.get((name, *key.split("."))) or lines.get((name, key), line_of_table)
                _add(config, known, (name, key), value, line_of_key)


def _unknown(name: str, value: object, known: dict[str, OptionSpec]) -> str:
    """Return what is wrong with a table, or with a setting before the first table."""
    listed = ", ".join(f"[{table}]" for table in TABLES)
    if isinstance(value, dict):
        return f"unknown table [{name}]; there are {listed}{nearest(name, TABLES)}"
    setting = next((spec for spec in known.values() if spec.name == name), None)
    if setting is None:
        return f"unknown setting {name}; settings belong under {listed}{nearest(name, list(known))}"
    return f"{name} is outside of its table; write [{setting.table}] on the line above it"


def _add(
    config: ConfigFile, known: dict[str, OptionSpec], name: tuple[str, str], value: object, line: int | None
) -> None:
    table, key = name
    if table == "keys":
        if isinstance(value, str):
            config.keys[key] = Found(value, line)
        else:
            config.problems.append(Problem(line, f'keys.{key}: not a string; expected "{key}" = "f5,ctrl+r"'))
        return
    spec = known.get(f"{table}.{key}")
    if spec is None:
        hint = nearest(key, [other.name for other in known.values() if other.table == table])
        elsewhere = [other.table for other in known.values() if other.name == key]
        hint = hint or (f"; it belongs to [{elsewhere[0]}]" if elsewhere else "")
        config.problems.append(Problem(line, f"unknown setting {table}.{key}{hint}"))
        return
    try:
        config.values[spec.key] = Found(checked(spec, value), line)
    except InputError as error:
        config.problems.append(Problem(line, f"{spec.key}: {_without(value, str(error))}"))


def _without(value: object, message: str) -> str:
    """Return a message without what it quotes of a value, which may be a secret in the wrong place."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    text = ",".join(map(str, values))
    for quoted in re.findall(r"""'[^']+'|"[^"]+\"""", message):
        if quoted[1:-1] in text or quoted[1:-1] in repr(text):
            for before, after in (("there is no ", "there is no such value"), (" ", ""), ("", "the value")):
                message = message.replace(before + quoted, after)
    return re.sub(r"^cannot read .*: ", "cannot read the file: ", message)


def checked(spec: OptionSpec, value: object) -> Any:
    """Return a value of the file in the form of the command line.

    Raises:
        InputError: The option does not take it; the text begins with what is wrong.
    """
    form = _FORMS[spec.kind](value)
    allowed = spec.allowed_in_file
    if allowed and form not in allowed:
        raise InputError(f"there is no {form[:40]!r}; one of {', '.join(allowed)}{nearest(form, allowed)}")
    if spec.parse is not None:
        try:
            spec.parse(form, spec.flag)
        except InputError as error:
            raise InputError(str(error).removeprefix(f"{spec.flag}: ")) from None
    return form


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise InputError(f'{_kind(value)} is not a string; expected "..."')
    if not value or len(value) > _MAX_TEXT or not value.isprintable():
        raise InputError(f"the string is empty, not printable or longer than {_MAX_TEXT} characters")
    return value


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InputError(f"{_kind(value)} is not a number")
    return str(value)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{_kind(value)} is neither true nor false (without quotes)")
    return value


def _list(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise InputError(f'{_kind(value)} is not a list of strings; expected ["...", "..."]')
    return [",".join(value)]


def _variables(value: object) -> list[str]:
    if not isinstance(value, dict):
        raise InputError(f'{_kind(value)} is not a table; expected {{ NCCL_DEBUG = "INFO" }}')
    texts = []
    for name, text in value.items():
        if not VARIABLE.fullmatch(name) or isinstance(text, bool) or not isinstance(text, (str, int)):
            raise InputError(f'{name[:40]!r} is not a variable with a string; expected NCCL_DEBUG = "INFO"')
        texts.append(f"{name}={text}")
    return texts


_FORMS: dict[str, Callable[[object], Any]]
_FORMS = {"text": _text, "number": _number, "switch": _switch, "list": _list, "variables": _variables}


def _kind(value: object) -> str:
    """Return what a value is: the value itself may be a secret in the wrong place."""
    return _KINDS.get(type(value), "a date or time")


def _flat(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the ids of bindings: without quotes, TOML turns their dots into nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{rest}", bound) for rest, bound in _flat(value))
        else:
            yield key, value


def _lines(text: str) -> dict[tuple[str, ...], int]:
    where: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if (header := re.fullmatch(HEADER, line)) is not None:
            table = key_parts(header[1])
            for length in range(1, len(table) + 1):
                where.setdefault(table[:length], number)
        elif (assignment := re.match(ASSIGNMENT, line)) is not None:
            where.setdefault((*table, *key_parts(assignment[1])), number)
    return where


def key_parts(key: str) -> tuple[str, ...]:
    parts = re.findall(r"""(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))""", key)
    return tuple(part for quoted in parts for part in "".join(quoted).split("."))


def merged(given: dict[str, Any], config: ConfigFile) -> dict[str, Any]:
    known = settings()
    own = {known[name].argument: found.value for name, found in config.values.items() if known[name].table == "session"}
    own = {name: value for name, value in own.items() if value is not False}
    for argument in _contradicting(given, own):
        own.pop(argument, None)
    texts: list[str] = given.get("env", [])
    overridden = {text.partition("=")[0] for text in [*texts, given.get("ab", "")]}
    variables = [*texts, *(text for text in own.pop("env", []) if text.partition("=")[0] not in overridden)]
    result = {**own, **given}
    if variables:
        result["env"] = variables
    keep = config.values.get("recording.keep")
    if keep is not None and keep.value is False and "record" not in given:
        result["no_record"] = True
    history = config.values.get("recording.history")
    if history is not None and history.value is False:
        result["no_history"] = True
    if "recording.folder" in config.values:
        result["record_folder"] = config.values["recording.folder"].value
    return result


def _contradicting(given: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """Return the settings that would turn valid arguments into an error."""
    wrong = list(_NOT_IN_A_LAB) if "lab" in given else []
    probes = names(given.get("probes") or own.get("probes") or [])
    if probes and "p2p" not in probes:
        needed = {"layers", "mode", "isolated", "bidirectional", "bytes", "ab"} & set(given)
        wrong += ["probes"] if needed and "probes" not in given else ["layers", "mode"]
    if probes and "all_reduce" not in probes and "probes" not in given and {"collectives", "sizes"} & set(given):
        wrong.append("probes")
    if "p2p" not in names(own.get("layers") or ["p2p"]) and {"isolated", "bidirectional"} & set(given):
        wrong.append("layers")
    return wrong


class SettingRow(NamedTuple):
    """A setting as it is in effect."""

    key: str  #: Its table and name.
    value: str  #: Its value as text.
    source: str  #: Where the value is from.


def settings_in_effect(given: dict[str, Any], config: ConfigFile) -> list[SettingRow]:
    rows = []
    for spec in settings().values():
        setting = config.values.get(spec.key)
        if spec.kind == "variables" and spec.argument in given and setting is not None:
            value = merged(given, config)[spec.argument]
            rows.append(SettingRow(spec.key, value_text(spec, value), f"command line and {source_of(config, setting)}"))
        elif spec.table in ("screen", "session") and spec.argument in given:
            rows.append(SettingRow(spec.key, value_text(spec, given[spec.argument]), "command line"))
        elif spec.key == "recording.keep" and {"record", "no_record"} & set(given):
            rows.append(SettingRow(spec.key, value_text(spec, "no_record" not in given), "command line"))
        elif setting is not None:
            rows.append(SettingRow(spec.key, value_text(spec, setting.value), source_of(config, setting)))
        else:
            rows.append(SettingRow(spec.key, default_text(spec), DEFAULT))
    return rows


def default_text(spec: OptionSpec) -> str:
    return spec.default or ("false" if spec.kind == "switch" else "none")


def value_text(spec: OptionSpec, value: object) -> str:
    """Return a value, in the form of the command line, as text."""
    if spec.kind == "variables" and isinstance(value, list):
        # Names only: this output ends up in bug reports, and a value may be a secret.
        return ",".join(f"{text.partition('=')[0]}=..." for text in value)
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def source_of(config: ConfigFile, found: Found) -> str:
    return found.variable or (f"{config.path.name}:{found.line}" if found.line else config.path.name)


def template(keys: list[tuple[str, str, str]]) -> str:
    """Return a settings file with every setting and key (id, default keys, title of a binding) commented out."""
    lines = [
        "# Settings of fabtui. Arguments override the environment (FABTUI_...), which overrides this file.",
        "# fabtui config validate checks this file; fabtui config show prints the settings in effect.",
    ]
    table = ""
    for spec in settings().values():
        if spec.table != table:
            table = spec.table
            lines += ["", f"[{table}]"]
        choices = f": {', '.join(spec.allowed_in_file)}" if spec.allowed_in_file else ""
        default = f" (default: {spec.default})" if spec.default else ""
        lines += [f"# {spec.help}{choices}{default}", f"#{spec.name} = {spec.example}"]
    lines += ["", "# Keys by binding; several keys are separated by commas. These are the defaults.", "[keys]"]
    lines += [f'#"{name}" = "{bound}"  # {title}' for name, bound, title in keys]
    return "\n".join(lines) + "\n"


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
        value = {name.strip(): text if sign else False for name, sign, text in parts}
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
        return f"{{ {', '.join(f'{name} = {_literal(own)}' for name, own in value.items())} }}"
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
    except (ValueError, RecursionError) as error:
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
    for at, row in enumerate(lines):
        if (head := re.fullmatch(HEADER, row.rstrip())) is not None:
            table = key_parts(head[1])
            header = at if table == (spec.table,) else header
        elif (assigned := re.match(ASSIGNMENT, row)) is not None:
            if (*table, *key_parts(assigned[1])) == (spec.table, spec.name):
                lines[at] = f"#{row}" if value is None else f"{assigned[0]} {_literal(value)}{_rest_of(row)}"
                return
        elif table == (spec.table,) and re.match(rf"#\s*{re.escape(spec.name)}\s*=", row) and commented is None:
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
    for at in (rest.start() for rest in re.finditer(r"(?<!\s)\s*(#|$)", line)):
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
