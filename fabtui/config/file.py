"""The user's settings file: reading it, and laying it under the arguments of the command line."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.errors import InputError
from fabtui.sanitize import one_line

#: A file of settings is short; whatever is larger is something else.
_LARGEST = 1 << 20
_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_HEADER = r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?"
_ASSIGNMENT = rf"\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*="


class Problem(NamedTuple):
    """Something that is wrong in the file.

    Attributes:
        line: The line it stands in, from 1; None where that is not known.
        text: What is wrong, and what to do.
    """

    line: int | None
    text: str


class Found(NamedTuple):
    """A value of the file.

    Attributes:
        value: The value, as the command line would have given it.
        line: The line it stands in.
    """

    value: Any
    line: int | None


@dataclass(slots=True)
class ConfigFile:
    """What a settings file says.

    Attributes:
        path: Where it lies.
        present: Whether it is there.
        values: The values that can be used, by table and key.
        keys: The keys for bindings, by the bindings' ids; not checked yet.
        problems: What cannot be used.
    """

    path: Path
    present: bool = False
    values: dict[str, Found] = field(default_factory=dict)
    keys: dict[str, Found] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def says(self, name: str) -> bool:
        """Say whether a switch is on."""
        found = self.values.get(name)
        return found is not None and found.value is True

    def told(self, problem: Problem) -> str:
        """Return a problem with its place, on one line."""
        place = f"{self.path}:{problem.line}" if problem.line else str(self.path)
        return one_line(f"{place}: {problem.text}", 400)


def config_path(args: argparse.Namespace | None = None) -> Path:
    """Return where the settings file is looked for: ``--config``, ``FABTUI_CONFIG``, the user's own."""
    from fabtui.paths import config_folder

    given = getattr(args, "config", None) or os.environ.get("FABTUI_CONFIG")
    return Path(given).expanduser() if given else config_folder() / "config.toml"


def read_config(args: argparse.Namespace | None = None) -> ConfigFile:
    """Read the settings file. What is wrong in it is told in the result; the rest of it holds.

    Raises:
        InputError: The user named a file that cannot be read.
    """
    path = config_path(args)
    found = ConfigFile(path)
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        if path != config_path_of_user():
            raise InputError(f"{path}: there is no such settings file") from None
        return found
    except OSError as error:
        if path != config_path_of_user():
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        found.problems.append(Problem(None, f"cannot be read: {error.strerror}"))
        return found
    found.present = True
    _parse(found, data)
    return found


def config_path_of_user() -> Path:
    """Return where the settings file lies that nobody has to name."""
    from fabtui.paths import config_folder

    return config_folder() / "config.toml"


def _parse(found: ConfigFile, data: bytes) -> None:
    import tomllib

    if len(data) > _LARGEST:
        found.problems.append(Problem(None, "is larger than 1 MiB, so it is no settings file"))
        return
    try:
        text = data.decode()
        tables = tomllib.loads(text)
    except UnicodeDecodeError as error:
        found.problems.append(Problem(data.count(b"\n", 0, error.start) + 1, "is not UTF-8"))
        return
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        at = int(line.group(1)) if line else text.count("\n") + 1
        found.problems.append(Problem(at, f"is not TOML: {error}"))
        return
    lines = _lines(text)
    for name, table in tables.items():
        _take_table(found, name, table, lines)


def _take_table(found: ConfigFile, name: str, table: object, lines: dict[tuple[str, ...], int]) -> None:
    from fabtui.config.schema import BY_NAME, SETTINGS, TABLES, nearest, taken

    line = lines.get((name,))
    if name not in TABLES:
        found.problems.append(Problem(line, f"unknown table [{name}]; there are {_tables()}{nearest(name, TABLES)}"))
        return
    if not isinstance(table, dict):
        found.problems.append(Problem(line, f"{name} is a table; expected [{name}] on a line of its own"))
        return
    for key, value in _flat(table) if name == "keys" else table.items():
        at = lines.get((name, *key.split("."))) or lines.get((name, key), line)
        if name == "keys":
            if isinstance(value, str):
                found.keys[key] = Found(value, at)
            else:
                found.problems.append(Problem(at, f'keys.{key}: not a text; expected "{key}" = "f5,ctrl+r"'))
            continue
        setting = BY_NAME.get(f"{name}.{key}")
        if setting is None:
            known = [one.key for one in SETTINGS if one.table == name]
            hint = nearest(key, known) or _elsewhere(key)
            found.problems.append(Problem(at, f"unknown setting {name}.{key}{hint}"))
            continue
        try:
            found.values[setting.name] = Found(taken(setting, value), at)
        except InputError as error:
            found.problems.append(Problem(at, f"{setting.name}: {error}"))


def _tables() -> str:
    from fabtui.config.schema import TABLES

    return ", ".join(f"[{name}]" for name in TABLES)


def _elsewhere(key: str) -> str:
    """Say in which table a setting of this name stands."""
    from fabtui.config.schema import SETTINGS

    tables = [one.table for one in SETTINGS if one.key == key]
    return f"; it stands in [{tables[0]}]" if tables else ""


def _flat(table: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the ids of bindings: unquoted, their dots make tables of tables."""
    found = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += [(f"{key}.{rest}", one) for rest, one in _flat(value)]
        else:
            found.append((key, value))
    return found


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return in which line each key stands, as far as the looks of the lines tell; tables count as keys."""
    where: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if (header := re.fullmatch(_HEADER, line)) is not None:
            table = _parts(header.group(1))
        elif (assignment := re.match(_ASSIGNMENT, line)) is not None:
            where.setdefault((*table, *_parts(assignment.group(1))), number)
            continue
        else:
            continue
        for length in range(1, len(table) + 1):
            where.setdefault(table[:length], number)
    return where


def _parts(key: str) -> tuple[str, ...]:
    found = re.findall(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*\.?""", key)
    return tuple(part for quoted in found for part in "".join(quoted).split("."))


#: A lab makes its own way to its nodes.
_NOT_IN_A_LAB = ("transport", "ssh_config", "host_key_policy", "remote_python")


def lay_under(given: dict[str, Any], config: ConfigFile) -> dict[str, Any]:
    """Return arguments of a session with the settings of the file where they say nothing, and nothing against them."""
    if not config.values:
        return dict(given)
    from fabtui.config.schema import BY_NAME

    own = {BY_NAME[name].argument: found.value for name, found in config.values.items() if name.startswith("session.")}
    own = {name: value for name, value in own.items() if value is not False}
    for argument in _against(given, own):
        own.pop(argument, None)
    variables = _variables(given, own.pop("env", []))
    merged = {**own, **given}
    if variables:
        merged["env"] = variables
    keep = config.values.get("recording.keep")
    if keep is not None and keep.value is False and "record" not in given:
        merged["no_record"] = True
    if "recording.folder" in config.values:
        merged["record_folder"] = config.values["recording.folder"].value
    return merged


def _against(given: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """Return the settings of the file that would make an error of arguments that are right by themselves."""
    wrong = list(_NOT_IN_A_LAB) if "lab" in given else []
    probes = _names(given.get("probes") or own.get("probes") or [])
    if probes and "p2p" not in probes:
        asked = {"layers", "mode", "isolated", "bidirectional", "bytes", "ab"} & set(given)
        wrong += ["probes"] if asked and "probes" not in given else ["layers", "mode"]
    if probes and "all_reduce" not in probes and "probes" not in given and {"collectives", "sizes"} & set(given):
        wrong.append("probes")
    if "p2p" not in _names(own.get("layers") or ["p2p"]) and {"isolated", "bidirectional"} & set(given):
        wrong.append("layers")
    return wrong


def _variables(given: dict[str, Any], own: list[str]) -> list[str]:
    texts: list[str] = given.get("env", [])
    taken_names = {text.partition("=")[0] for text in [*texts, given.get("ab", "")]}
    return [*texts, *(text for text in own if text.partition("=")[0] not in taken_names)]


def _names(texts: list[str]) -> list[str]:
    return [name.strip() for name in ",".join(texts).split(",")]
