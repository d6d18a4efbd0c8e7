"""What can stand in the user's settings file, and how each of its values is checked.

Values are brought into the form in which the command line gives them, so that one set of checks serves both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fabtui.cli.arguments import COLORS, ENGINES, HOST_KEY_POLICIES, MODES
from fabtui.errors import InputError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 1000


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting by its table and key.

    Attributes:
        table: The table of the file it stands in.
        key: Its name there, that of the option without the dashes.
        kind: ``text``, ``number``, ``switch``, ``list`` or ``variables``.
        default: What holds without it, as users read it.
        example: A value as it is written in the file.
        words: What it means, in a line.
        choices: The values it may have; empty: any.
    """

    table: str
    key: str
    kind: str
    default: str
    example: str
    words: str
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its table and key."""
        return f"{self.table}.{self.key}"

    @property
    def argument(self) -> str:
        """Its name among the arguments of the command line."""
        return self.key.replace("-", "_")


SETTINGS: tuple[Setting, ...] = (
    Setting("screen", "theme", "text", "dark", '"dark"', "the colours: dark, light, high-contrast, mono, ansi, yours"),
    Setting("screen", "colors", "text", "auto", '"auto"', "how many colours the terminal has", COLORS),
    Setting("screen", "ascii", "switch", "false", "true", "only ASCII characters"),
    # `local` leaves out whatever nodes are named, so it is asked for each time.
    Setting("session", "transport", "text", "ssh", '"openssh"', "asyncssh, or your ssh", ("ssh", "openssh")),
    Setting("session", "ssh-config", "text", "your own", '"~/.ssh/cluster"', "an ssh_config file"),
    Setting("session", "host-key-policy", "text", "config", '"strict"', "how host keys are checked", HOST_KEY_POLICIES),
    Setting("session", "remote-python", "text", "looked for", '"/opt/venv/bin/python3"', "the Python of the nodes"),
    Setting("session", "connect-timeout", "number", "10", "5", "deadline of reaching one node, in seconds"),
    Setting("session", "lease", "number", "10", "30", "a node ends by itself after so many seconds without us"),
    Setting("session", "probes", "list", "all", '["ping", "p2p"]', "which probes run"),
    Setting("session", "layers", "list", "world,p2p", '["world", "p2p"]', "which layers of pairs are tested"),
    Setting("session", "mode", "text", "auto", '"sampled"', "which pairs are tested", MODES),
    Setting("session", "engine", "text", "auto", '"nccl"', "what drives the ranks", ENGINES),
    Setting("session", "bytes", "text", "256M; 4M on CPUs", '"64M"', "message sizes of pairs"),
    Setting("session", "timeout", "number", "10", "20", "deadline of one test, in seconds"),
    Setting("session", "iters", "number", "20", "50", "timed iterations of one test, at most"),
    Setting("session", "warmup", "number", "2", "5", "iterations before the clock runs"),
    Setting("session", "ranks-per-node", "number", "1", "4", "CPU ranks of a node without GPUs"),
    Setting("session", "keep-warm", "switch", "false", "true", "keep the GPUs after a sweep, for quick re-tests"),
    Setting("session", "env", "variables", "none", '{ NCCL_SOCKET_IFNAME = "bond0" }', "variables for the ranks"),
    Setting("recording", "keep", "switch", "true", "false", "record every session"),
    Setting("recording", "folder", "text", "the state folder", '"/scratch/me/fabtui"', "where recordings go"),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
TABLES = ("screen", "session", "recording", "keys")


def taken(setting: Setting, value: object) -> Any:
    """Return a value of the file as the command line would have given it.

    Raises:
        InputError: It is not one that the setting takes; the text begins with what is wrong.
    """
    form = _FORMS[setting.kind](value)
    if setting.choices and form not in setting.choices:
        raise InputError(
            f"there is no {form[:40]!r}; one of {', '.join(setting.choices)}{nearest(form, setting.choices)}"
        )
    if setting.table == "session":
        _check(setting, form)
    return form


def _check(setting: Setting, form: Any) -> None:
    from fabtui.cli.options_from_args import reach_from, tests_from

    try:
        reach_from({setting.argument: form})
        tests_from({setting.argument: form})
    except InputError as error:
        text = str(error)
        raise InputError(text.partition(": ")[2] if text.startswith("--") else text) from None


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value or len(value) > _LONGEST or not value.isprintable():
        raise InputError(f'{_shown(value)} is not a text; expected "..."')
    return value


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InputError(f"{_shown(value)} is not a number")
    return str(value)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{_shown(value)} is neither true nor false (without quotes)")
    return value


def _list(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise InputError(f'{_shown(value)} is not a list of texts; expected ["...", "..."]')
    return [",".join(value)]


def _variables(value: object) -> list[str]:
    if not isinstance(value, dict):
        raise InputError(f'{_shown(value)} is not a table; expected {{ NCCL_DEBUG = "INFO" }}')
    found = []
    for name, text in value.items():
        if not _NAME.fullmatch(name) or isinstance(text, bool) or not isinstance(text, (str, int)):
            raise InputError(f'{name[:40]!r} is not a variable with a text; expected NCCL_DEBUG = "INFO"')
        found.append(f"{name}={text}")
    return found


_FORMS: dict[str, Callable[[object], Any]] = {
    "text": _text,
    "number": _number,
    "switch": _switch,
    "list": _list,
    "variables": _variables,
}


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def nearest(name: str, known: Sequence[str]) -> str:
    """Return ``; did you mean x?`` for the known name that is nearest, or nothing where none is near."""
    import difflib

    found = difflib.get_close_matches(name, known, 1, 0.6)
    return f"; did you mean {found[0]}?" if found else ""
