"""The parser of the command line, built from the table of commands and the option table."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

from fabtui.config.options import APP, OPTIONS, OptionSpec, options_of
from fabtui.config.values import nearest
from fabtui.errors import InputError
from fabtui.version import __version__

#: Commands that open links to nodes, given as --nodes.
LIVE = (None, "run", "watch", "bisect", "preflight", "serve", "mcp", "job", "hang", "accept")
#: The commands that people use, in the order of the help, with a line each; see `place_of` for their modules.
COMMANDS = {
    "run": "the same without a screen, for scripts and CI",
    "hang": "does a running job hang, which rank is behind, and what to do",
    "job": "watch a job: state, logs, GPUs, iteration times, what is wrong",
    "preflight": "inspect the nodes without tests: faults and differences",
    "replay": "replay a recording in the app, or as text",
    "diff": "compare two sessions: what is worse, better, new or gone",
    "report": "write a one-page report, as HTML or Markdown",
    "explain": "explain rules, errors, Xids, and logs of failed jobs",
    "nodes": "the nodes and GPUs that work together, and their best order",
    "watch": "repeat a small sweep, and keep a file of metrics up to date",
    "serve": "the app in a browser, through ssh -L",
    "share": "a copy of a session without names, addresses and serial numbers",
}
#: Further commands, which ``fabtui help --all`` lists.
FURTHER = {
    "bisect": "search by halves: which nodes make a collective of many slow",
    "accept": "accept a cluster by a list of items with limits, as a page, and JUnit",
    "gate": "may a job start on this node: one line in seconds, for Prolog and health checks",
    "history": "what earlier sessions saw: what is getting worse, flapping or new",
    "read": "show, judge or convert the output of other tools",
    "demo": "films: faults and how they are found; one is made live on this machine",
    "resume": "continue a session that was cut short",
    "lab": "a lab on this machine that stays up until lab down: break it and watch",
    "mcp": "measuring tools for assistants, over the Model Context Protocol",
    "config": "the settings file: show, validate, init, path",
    "info": "versions, paths, terminal and tools of this machine",
    "probes": "list the probes and tests; write a template of one",
    "completion": "shell completion for bash, zsh, fish or tcsh",
    "help": "help about a command, the list of all, or a JSON Schema",
}
#: Earlier names of commands, with what took their place.
FORMER = {
    **{"healthy": "nodes", "order": "nodes --order", "watchdog": "hang --wait", "schema": "help --schema"},
    **{source: f"hang --source {source}" for source in ("ras", "flight", "stacks")},
}
#: Commands in the module of a related one.
_GUESTS = {"completion": "help", "job": "hang", "probes": "info", "resume": "run", "serve": "app"}
#: Options in the help of commands that take more than this number.
_MANY = 24
_USUAL = ("nodes", "hostfile", "jobid", "lab", "probes", "mode", "pair", "bytes", "csv", "report")
#: Widest option beside its text in the help.
_WIDEST = 26
#: Least number of columns of the help.
_NARROWEST = 60
#: Maximum number of choices that the help lists.
_MOST_CHOICES = 9

#: Messages of argparse, whose words differ between versions of Python.
_NO_VALUE = re.compile(r"argument (?:-\w/)?(--[\w-]+): expected (?:one|at least one) argument")
_NO_CHOICE = re.compile(r"argument ([\w-]+): invalid choice: (.*) \(choose from (.*)\)")
_MISSING = re.compile(r"the following arguments are required: (.*)")
#: What other tools call our options.
_OTHER_NAMES = {
    **{"metrics": "prom", "prometheus": "prom", "html": "report", "xml": "junit", "output": "json"},
    **{"host": "nodes", "hosts": "nodes", "machinefile": "hostfile", "job": "jobid", "size": "bytes"},
}


def first_word(words: Sequence[str]) -> int:
    """Return the place of the first word that is neither an option nor the value of one; behind the last for none."""
    specs = {spec.flag: spec for spec in reversed(OPTIONS) if not spec.positional}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        spec = specs.get(words[at])
        valued = spec is not None and spec.kind != "switch" and not spec.optional
        at += 2 if valued else 1
    return at


def expanded(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with its command first; without a command, as they are.

    Options before the command belong to it as well: ``fabtui --theme dark replay FILE``.

    Raises:
        InputError: The command has another name now.
    """
    at = first_word(words)
    if words[at : at + 1] and words[at] in FORMER:
        raise InputError(f"'{words[at]}' is 'fabtui {FORMER[words[at]]}' now")
    if at >= len(words) or words[at] not in (*COMMANDS, *FURTHER):
        return list(words)
    rest = list(words[at + 1 :])
    if words[at] == "serve" and rest[:1] == ["replay"]:
        # The command that is served, as it is typed without "serve".
        rest[0] = "--replay"
    return [words[at], *words[:at], *rest]


def place_of(command: str) -> tuple[str, str]:
    """Return the module of a command, and what its names there end in: of a guest its name, as ``HELP_RESUME``."""
    return _GUESTS.get(command, command or "app"), f"_{command}" if command in _GUESTS else ""


def help_of(command: str) -> tuple[str, str]:
    """Return description and epilog of a command, read from its module: importing it takes up to 0.3 s."""
    module, end = place_of(command)
    with open(os.path.join(os.path.dirname(__file__), "commands", f"{module}.py"), encoding="utf-8") as file:
        text = file.read().partition(f'\nHELP{end.upper()} = """\\\n')[2].partition('"""')[0]
    description, _, epilog = text.partition("\n\n")
    return description.strip(), epilog


class _Help(argparse.Action):
    """Prints the help of a parser, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *args: object) -> NoReturn:
        assert isinstance(parser, OneLineParser)
        parser.complete = "--help-all" in self.option_strings
        parser.print_help()
        parser.exit()


def _row(spec: OptionSpec) -> tuple[str, str]:
    flag = f"{spec.short}, {spec.flag}" if spec.short else spec.flag
    value = "" if spec.kind == "switch" else f" {spec.metavar or spec.argument.upper()}"
    named = spec.allowed and all(choice in spec.help for choice in spec.allowed if choice != spec.default)
    choices = "" if named or not 0 < len(spec.allowed) <= _MOST_CHOICES else f": {', '.join(spec.allowed)}"
    return f"{flag}{value}", f"{spec.help}{choices}{f' (default: {spec.default})' if spec.default else ''}"


def rows_text(heading: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return rows of a help, each a name and a text, below a heading; texts are wrapped to the terminal."""
    rows = list(rows)
    columns = max(shutil.get_terminal_size().columns - 1, _NARROWEST)
    width = min(max(len(name) for name, _ in rows), _WIDEST)
    lines = [f"{heading}:"]
    for name, text in rows:
        beside = len(name) <= width
        lines += [] if beside else [f"  {name}"]
        first = f"  {name if beside else '':<{width}}  "
        # The colon of "-: stdin" ends no line.
        whole = text.replace("-: ", "-:\xa0")
        found = textwrap.wrap(whole, columns, initial_indent=first, subsequent_indent=" " * (width + 4)) or [first]
        lines += [line.replace("\xa0", " ") for line in found]
    return "\n".join(lines)


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line and that accepts no abbreviated options.

    Options have no defaults: what was not given is absent from the namespace. The defaults are those of
    `fabtui.session.options.SessionOptions`.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("argument_default", argparse.SUPPRESS)
        kwargs["add_help"] = False
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.add_argument("-h", "--help", action=_Help, nargs=0, help="show the usual options")
        self.add_argument("--help-all", action=_Help, nargs=0, help="show all options")
        self._words: list[str] = []
        self.complete = False  #: Whether its help has all options.
        self.command = ""  #: The command of this parser, or "" for the app.

    def format_help(self) -> str:
        """Return the help: the text of the command's module, its usage and its usual options; all on request."""
        description, epilog = help_of(self.command)
        examples, _, codes = epilog.partition("\n\n")
        parts = [description, self.usage_text(), examples] if not self.command else [description, self.usage_text()]
        if not self.command:
            parts.append(rows_text("commands", COMMANDS.items()))
        specs = [spec for spec in options_of(self.command or APP) if not spec.positional]
        shown = specs
        if not self.complete:
            many = len(specs) > _MANY
            usual = {spec.name for spec in specs if spec.name in _USUAL or spec.commands == (self.command,)}
            shown = [spec for spec in specs if (spec.name in usual if many else spec.group != "connection")]
            # Where a job is asked about, or a server started, its own options matter more than how nodes are named.
            shown.sort(key=lambda spec: self.command in ("hang", "job", "mcp") and spec.group == "nodes")
        groups: dict[str, list[OptionSpec]] = {}
        for spec in shown:
            groups.setdefault(spec.group if self.complete else "options", []).append(spec)
        parts += [rows_text(name, map(_row, mine)) for name, mine in groups.items()]
        more = "" if len(shown) == len(specs) else self._more()
        parts += [epilog, more] if self.command else [f"{codes.rstrip()}\n{more}"]
        return "\n\n".join(part.rstrip() for part in parts if part.strip()) + "\n"

    def usage_text(self) -> str:
        arguments = [spec for spec in options_of(self.command or APP) if spec.positional]
        words = [f"usage: {self.prog}", *([] if self.command else ["[COMMAND]"]), "[options]"]
        for spec in arguments:
            name = spec.metavar or "|".join(spec.allowed) or spec.name.upper()
            words.append({"*": f"[{name} ...]", "?": f"[{name}]"}.get(spec.positional, name))
        return " ".join(words)

    def _more(self) -> str:
        if self.command:
            linked = any(spec.group == "connection" for spec in options_of(self.command))
            options = "how nodes are reached (--transport, --via, ...), and all" if linked else "all"
            return f"{options} options: fabtui {self.command} --help-all"
        return "more: fabtui COMMAND --help, --help-all (options), help --all (commands)"

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line with the problem and the help to read."""
        if message.startswith("argument COMMAND: invalid choice"):
            # The value of a misspelled option is taken for the command.
            message = unknown_option(self._words, APP) or message
        self._leave(self._in_plain_words(message), self.prog)

    def _in_plain_words(self, message: str) -> str:
        specs = {spec.flag: spec for spec in options_of(self.command or APP)}
        if (found := _NO_VALUE.fullmatch(message)) and (spec := specs.get(found[1])):
            return f"{spec.flag} needs a value: {_row(spec)[0]}"
        if found := _NO_CHOICE.fullmatch(message):
            known = [one.strip(" '\"") for one in found[3].split(",")]
            value = found[2].strip("'\"")
            return f"{found[1]}: {value!r} is not one of {', '.join(known)}{nearest(value, known)}"
        if found := _MISSING.fullmatch(message):
            return f"{found[1]} is missing: {self.usage_text().removeprefix('usage: ')}"
        return message

    def _leave(self, message: str, command: str) -> NoReturn:
        text = " ".join("".join(c if c.isprintable() else "?" for c in message).split())
        self.exit(2, f"fabtui: error: {text}{' See' if text.endswith('?') else '; see'} {command} --help\n")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Return the namespace; unrecognized arguments are reported with the command they were given to."""
        self._words = list(args or ())
        found, rest = self.parse_known_args(_joined(self._words), namespace)
        many = [spec.name for spec in options_of(getattr(found, "command", None) or APP) if spec.positional == "*"]
        if many and not any(word.startswith("-") for word in rest):
            # argparse takes such words from one place only: those after an option are left over.
            setattr(found, many[0], [*getattr(found, many[0], []), *rest])
        elif rest:
            command = getattr(found, "command", None)
            is_node = command in LIVE and not any(word.startswith("-") for word in rest)
            own = f"fabtui {command}" if command else "fabtui"
            hint = f"; did you mean {own} --nodes {shlex.quote(','.join(rest))}?" if is_node else ""
            if is_node and os.path.exists(rest[0]):
                hint = f"; did you mean fabtui {shlex.join(rest)}?"
            problem = f"unrecognized arguments: {' '.join(rest)}{hint}"
            self._leave(unknown_option(rest, command or APP) or problem, f"{self.prog} {command or ''}".strip())
        return found


def _joined(words: Sequence[str]) -> list[str]:
    """Return the words with values that begin with a dash joined to their options; argparse takes them for options."""
    dashed = {spec.flag for spec in OPTIONS if spec.dashed}
    found: list[str] = []
    for word in words:
        if found and found[-1] in dashed:
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def unknown_option(words: Sequence[str], command: str) -> str:
    """Return what is wrong with the first long option that a command does not have, or nothing."""
    known = ["--help", "--help-all", "--version", *(spec.flag for spec in options_of(command) if not spec.positional)]
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in ("--", *known):
            # Without the dashes, which would make any two options similar.
            other = f"--{_OTHER_NAMES.get(name[2:], '')}"
            near = f"; did you mean {other}?" if other in known else ""
            near = near or nearest(name[2:], [flag[2:] for flag in known]).replace("mean ", "mean --")
            return f"{f'fabtui {command}'.strip()} has no option {name}{near}"
    return ""


def build_parser(words: Collection[str] = (*COMMANDS, *FURTHER)) -> OneLineParser:
    """Return the parser of a command line, with the options of the commands among its words; by default of all."""
    parser = OneLineParser(prog="fabtui")
    parser.add_argument("--version", action="version", version=f"fabtui {__version__}", help="show the version")
    _add_options(parser, options_of(APP))

    def parser_of(**settings: Any) -> Any:
        # Each takes 0.4 ms, most of it for translations of its headings.
        return OneLineParser(**settings) if settings["prog"].partition(" ")[2] in words else None

    kind: Any = parser_of
    commands = parser.add_subparsers(
        title="commands", dest="command", prog="fabtui", metavar="COMMAND", parser_class=kind
    )
    for name, line in {**COMMANDS, **FURTHER}.items():
        if (added := commands.add_parser(name, help=line)) is not None:
            added.command = name
            _add_options(added, options_of(name))
    return parser


def _add_options(parser: argparse.ArgumentParser, specs: Sequence[OptionSpec]) -> None:
    groups: dict[str, Any] = {"": parser}
    for spec in specs:
        if spec.group not in groups:
            groups[spec.group] = parser.add_argument_group(spec.group)
        group = groups[spec.group]
        if spec.exclusive:
            group = groups.setdefault(f"!{spec.exclusive}", None) or groups[spec.group].add_mutually_exclusive_group()
            groups[f"!{spec.exclusive}"] = group
        default = f" (default: {spec.default})" if spec.default else ""
        settings: dict[str, Any] = {"help": spec.help + default, "choices": spec.allowed or None}
        if spec.kind == "switch":
            settings = {"help": settings["help"], "action": "store_true"}
        elif spec.kind in ("list", "variables") and not spec.positional:
            settings["action"] = "append"
        elif spec.kind == "paths":
            # A shell expands `*`.
            settings |= {"action": "extend", "nargs": "+"}
        if spec.metavar:
            settings["metavar"] = spec.metavar
        if spec.positional:
            settings |= {"nargs": spec.positional} if spec.positional != "1" else {}
            group.add_argument(spec.name, **settings)
            continue
        if spec.optional:
            settings |= {"nargs": "?", "const": spec.optional}
        group.add_argument(spec.flag, *([spec.short] if spec.short else []), **settings)
