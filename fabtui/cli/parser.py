"""The parser of the command line, built from the table of commands and the option table."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from fabtui.config.options import APP, OPTIONS, OptionSpec, options_of
from fabtui.config.values import nearest
from fabtui.version import __version__

_NODES_HINT = "nodes are given as --nodes n060,n061"
#: Commands that open links to nodes, given as --nodes.
LIVE = (None, "run", "watch", "preflight", "serve", "job", "hang", "watchdog", "ras", "flight", "stacks")
#: The commands in the order of the help, with a line each; their modules are ``fabtui.cli.commands.NAME``.
COMMANDS = {
    "run": "run a session without a screen",
    "watch": "repeat a small sweep, and keep a file of metrics up to date",
    "preflight": "inspect the nodes without tests: faults and differences",
    "replay": "replay a recording in the app, or as text",
    "resume": "continue a session that was cut short",
    "read": "show or convert the output of other tools",
    "report": "write a one-page report, as HTML or Markdown",
    "job": "watch a job: state, logs, GPUs, settings, iteration times, what is wrong",
    "hang": "does a running job hang: which rank is behind, by which evidence, what to type next",
    "healthy": "the nodes and GPUs of a session that work together",
    "order": "order of the nodes that keeps slow links between neighbours out",
    "share": "a copy of a session without names, addresses and serial numbers",
    "diff": "compare two sessions: what is worse, better, new or gone",
    "explain": "explain rules, errors, Xids, and logs of failed jobs",
    "lab": "nodes on this machine that stand until lab down: break them, and watch it",
    "serve": "the app in a browser, through ssh -L",
    "config": "the settings file: show, validate, init, path",
    "info": "versions, paths, terminal and tools of this machine",
    "probes": "list the probes and tests; write a template of one",
    "schema": "JSON Schemas of the JSON files",
    "completion": "shell completion for bash, zsh, fish or tcsh",
}
#: Commands behind `hang`, each with one of its sources, that the help does not list.
HIDDEN = {
    "watchdog": "watch a running job until it ends; report each time that it hangs",
    "ras": "ask NCCL on the nodes of a running job which rank is behind",
    "flight": "flight recorder dumps of a running job, and which rank is behind",
    "stacks": "where the ranks of a running job are, equal stacks together",
}


def help_of(command: str) -> tuple[str, str]:
    """Return the description and the epilog of a command: the ``HELP`` of its module, which is read, not imported.

    Importing the module of a command takes up to 0.3 s.
    """
    path = os.path.join(os.path.dirname(__file__), "commands", f"{command or 'app'}.py")
    with open(path, encoding="utf-8") as file:
        text = file.read().partition('\nHELP = """\\\n')[2].partition('"""')[0]
    description, _, epilog = text.partition("\n\n")
    return description.strip(), epilog


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line and that accepts no abbreviated options.

    Options have no defaults: what was not given is absent from the namespace. The defaults are those of
    `fabtui.session.options.SessionOptions`.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("argument_default", argparse.SUPPRESS)
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._words: list[str] = []
        self.command = ""  #: The command of this parser, or "" for the app.

    def format_help(self) -> str:
        """Return the help, with the text of the command's module."""
        self.description, self.epilog = help_of(self.command)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line with the problem and the help to read."""
        if message.startswith("argument COMMAND: invalid choice"):
            # The value of a misspelled option is taken for the command.
            wrong = _unknown_option(self._words, APP)
            word = message.partition("invalid choice: ")[2].partition(" (choose from ")[0]
            near = nearest(word.strip("'\""), list(COMMANDS)) or f"; {_NODES_HINT}"
            message = wrong or f"unknown command {word}{near}"
        self._leave(message, self.prog)

    def _leave(self, message: str, command: str) -> NoReturn:
        text = " ".join("".join(c if c.isprintable() else "?" for c in message).split())
        self.exit(2, f"fabtui: error: {text}; see {command} --help\n")

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
            problem = f"unrecognized arguments: {' '.join(rest)}" + (f"; {_NODES_HINT}" if is_node else "")
            self._leave(_unknown_option(rest, command or APP) or problem, f"{self.prog} {command or ''}".strip())
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


def _unknown_option(words: Sequence[str], command: str) -> str:
    """Return what is wrong with the first long option that a command does not have, or nothing."""
    known = ["--help", "--version", *(spec.flag for spec in options_of(command) if not spec.positional)]
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in ("--", *known):
            # Without the dashes, which would make any two options similar.
            near = nearest(name[2:], [flag[2:] for flag in known]).replace("mean ", "mean --")
            return f"{f'fabtui {command}'.strip()} has no option {name}{near}"
    return ""


def build_parser(words: Collection[str] = (*COMMANDS, *HIDDEN)) -> OneLineParser:
    """Return the parser of a command line, with the options of the commands among its words; by default of all."""
    parser = OneLineParser(
        prog="fabtui",
        usage="fabtui [--nodes SET | --hostfile FILE | --lab NxM] [options]\n       fabtui COMMAND [options]",
    )
    parser.add_argument("--version", action="version", version=f"fabtui {__version__}", help="show the version")
    _add_options(parser, options_of(APP))

    def parser_of(**settings: Any) -> Any:
        # Each takes 0.4 ms, most of it for translations of its headings.
        return OneLineParser(**settings) if settings["prog"].partition(" ")[2] in words else None

    kind: Any = parser_of
    commands = parser.add_subparsers(
        title="commands", dest="command", prog="fabtui", metavar="COMMAND", parser_class=kind
    )
    for name in (*COMMANDS, *HIDDEN):
        # Without a line, the help of fabtui leaves it out.
        listed: dict[str, Any] = {"help": COMMANDS[name]} if name in COMMANDS else {}
        if (added := commands.add_parser(name, **listed)) is not None:
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
