"""The parser of the command line, built from the table of commands and the option table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from fabtui import __version__
from fabtui.config.file import nearest
from fabtui.config.options import APP, OptionSpec, options_of

_NODES_HINT = "nodes are given as --nodes n060,n061"
#: Commands with --nodes: a stray word is probably a node.
_WITH_NODES = (None, "run", "preflight", "serve", "ras", "stacks")


class CommandSpec(NamedTuple):
    """A command, whose module is ``fabtui.cli.commands.NAME``; the epilog has examples and exit codes."""

    name: str
    help: str
    description: str
    epilog: str = ""


_APP_EPILOG = """\
examples:
  fabtui --nodes n060,n061                     the app on two nodes
  fabtui --nodes 'n[060-067]' --exclude n063   seven nodes
  fabtui --hostfile hosts --csv pairs.csv      nodes of a file; a CSV file at the end
  fabtui --lab 2x4                             try it on this machine, without nodes
  fabtui --nodes @rack1 --mode quick           fewer pairs, but every endpoint and rail
  fabtui run --nodes @rack1 --csv pairs.csv    without a screen, for scripts
  fabtui preflight --nodes @rack1              inspect only: faults and differences
  fabtui replay session.jsonl.gz               replay a session
  fabtui read nccl.log bw/*.txt                outputs of other tools
  fabtui diff before.jsonl.gz after.jsonl.gz   compare two sessions
  fabtui explain rank*.log                     why a job failed
  fabtui healthy session.jsonl.gz              nodes that work together, for Slurm and MPI

exit codes of fabtui and run: 0 everything ok; 1 something is slow, failed or timed out;
2 bad usage or input; 3 something could not be tested; 130 interrupted
"""

COMMANDS = (
    CommandSpec(
        "run",
        "run a session without a screen",
        "Run a session without a screen: progress goes to stderr, a summary to stdout.",
        """\
examples:
  fabtui run --nodes n060,n061 --csv pairs.csv
  fabtui run --nodes @rack1 --probes p2p --bytes 64M --quiet && echo fabric ok
  fabtui run --nodes n060,n061 --collectives all --sizes 1M-1G:4 --table collectives.csv
  fabtui run --nodes n060,n061 --ab NCCL_IB_DISABLE=0,1
  fabtui run --nodes n060,n061 --pair 'n060:3>n061:5' --probes p2p
  fabtui run --nodes @rack1 --confirm          also test what the findings blame
  fabtui run --nodes @rack1 --watch 3600       find a pair that fails now and then
  fabtui run --nodes n060,n061 --text          every layer, for screen readers and logs
  fabtui run --lab 2x4 --lab-fault 'n000:1>n001:2=drop'

exit codes: 0 everything ok; 1 something is slow, failed or timed out; 2 bad usage or input;
3 something could not be tested; 130 interrupted (what was measured until then is written)
""",
    ),
    CommandSpec(
        "preflight",
        "inspect the nodes without tests: faults and differences",
        "Inspect the nodes with all light probes, without starting ranks, and report faults and outliers.",
        """\
examples:
  fabtui preflight --nodes 'n[060-067]'
  fabtui preflight --hostfile hosts --all
  fabtui preflight --nodes @rack1 --json before.json
  fabtui preflight --nodes @rack1 --baseline before.json
  fabtui preflight --nodes @rack1 --expect gpus='8 x H200' --fail-on bad
  fabtui preflight --nodes @rack1 --csv - | column -s, -t | less -S

exit codes: 0 no findings (notes do not count); 1 a fault, a difference or a change (see --fail-on);
2 bad usage or input; 3 something could not be inspected; 130 interrupted
""",
    ),
    CommandSpec(
        "replay",
        "replay a recording in the app, or as text",
        "Replay a recorded session. Recordings are in the state folder (see fabtui info).",
        """\
examples:
  fabtui replay                                list the recordings, newest first
  fabtui replay session.jsonl.gz               at the original speed
  fabtui replay session.jsonl.gz --speed 10    ten times faster
  fabtui replay session.jsonl.gz --speed max   show its end at once
  fabtui replay session.jsonl.gz --text        print the summary, as run does
  fabtui replay session.jsonl.gz --text --csv pairs.csv
""",
    ),
    CommandSpec(
        "read",
        "show or convert the output of other tools",
        "Read the output of nccl-tests, nvbandwidth, perftest, ibstat, nvidia-smi and many others.",
        """\
examples:
  fabtui read nccl.log                         detect the format and show the content
  ssh n060 ibstat | fabtui read -              read standard input
  fabtui read --json results/                  one JSON object per file, one per line
  fabtui read bw-n06*.txt --csv pairs.csv      all files in one CSV snapshot
  fabtui read p2p-runs/ --open                 show the measurements in the grid
  fabtui read --list                           all formats

exit codes: 0 all formats recognised; 2 bad usage or input; 3 a format was not recognised
""",
    ),
    CommandSpec(
        "ras",
        "ask NCCL on the nodes of a running job which rank is behind",
        "Ask the RAS service of NCCL 2.24 and later which ranks of a running job are behind, silent or failed.",
        """\
examples:
  fabtui ras --nodes n060,n061                 nodes of the job; the first that has a report answers for all
  fabtui ras                                   on a node of the job, in its pod or container
  fabtui ras --nodes n060 --address '[::1]:28030' --json
  fabtui ras --nodes n060 --wait 0             one report, without whether the job moves

Nothing is started or changed on the nodes, and the job does not notice. RAS does not see send and recv.

exit codes: 0 no rank is behind; 1 a rank is behind and nothing moves; 2 bad usage or input; 3 no node has a report
""",
    ),
    CommandSpec(
        "stacks",
        "where the ranks of a running job are, equal stacks together",
        "Print where the ranks of a running job are: by py-spy or pystack if the nodes have one, else by the kernel.",
        """\
examples:
  fabtui stacks --nodes 'n[060-067]'           all nodes of the job; the ranks that differ first
  fabtui stacks                                on a node of the job, in its pod or container

Nothing is installed on the nodes, and no process is stopped. Ranks are processes with RANK, SLURM_PROCID,
OMPI_COMM_WORLD_RANK or PMI_RANK in their environment.

exit codes: 0 ranks were found; 2 bad usage or input; 3 no rank was found
""",
    ),
    CommandSpec(
        "healthy",
        "the nodes and GPUs of a session that work together",
        "Print the largest set of nodes without a bad pair, for Slurm and MPI, and what to do with the others.",
        """\
examples:
  fabtui healthy session.jsonl.gz              node list, rank order, commands to drain the others
  fabtui healthy pairs.csv --hostfile hosts    also write a host file for mpirun --hostfile
  fabtui healthy session.json --json           one JSON object

Nothing is run or drained. FILE is a recording, a CSV or JSON of fabtui, or output that fabtui read recognises.

exit codes: 0 all nodes are healthy; 1 some are left out; 2 bad usage or input, or no pair was tested
""",
    ),
    CommandSpec(
        "diff",
        "compare two sessions: what is worse, better, new or gone",
        "Compare recordings, CSV snapshots and JSON sessions: pairs, facts of nodes, and findings that changed.",
        """\
examples:
  fabtui diff monday.jsonl.gz today.jsonl.gz
  fabtui diff good.csv today.jsonl.gz          a CSV holds pairs only: facts are not compared
  fabtui diff a.json b.json --csv changes.csv
  fabtui diff a.json b.json --json | jq .findings.new

exit codes: 0 nothing is worse; 1 something is worse, or new and bad; 2 bad usage or input
""",
    ),
    CommandSpec(
        "explain",
        "explain rules, errors, Xids, and logs of failed jobs",
        "Explain a rule, an error of NCCL or CUDA, an Xid, or logs (the earliest cause first), offline.",
        """\
examples:
  fabtui explain FT012                         a rule, by code or name
  fabtui explain E13                           an error of the catalogue
  fabtui explain xid 79                        an Xid of NVIDIA's catalogue
  fabtui explain 'ibv_modify_qp failed with error Connection timed out'
  fabtui explain rank*.log                     logs of one job: the earliest cause first
  srun ... 2>&1 | fabtui explain -             read standard input
  fabtui explain --list                        all rules and errors

exit codes: 0 explained; 1 unknown; 2 bad usage or input
""",
    ),
    CommandSpec(
        "serve",
        "the app in a browser, through ssh -L",
        "Serve the app to a browser on this machine, or through ssh -L to a browser elsewhere.",
        """\
examples:
  fabtui serve --nodes n060,n061               prints the address, and the ssh command to reach it
  fabtui serve --port 0 --replay session.jsonl.gz

The server listens on 127.0.0.1 only and accepts only addresses with the random token that it prints. Anyone who has
the address can do what you can do in the app. Each window is a session of its own, one at a time; closing it stops
everything on the nodes. Ctrl+C stops the server.
""",
    ),
    CommandSpec(
        "config",
        "the settings file: show, validate, init, path",
        "Show the settings in effect, check the settings file, create a new one, or print its path.",
        """\
examples:
  fabtui config init                       write a settings file with every setting commented out
  fabtui config show --theme light         print the settings in effect and the source of each
  fabtui config validate                   exit code 0, or 2 and a line for each problem

Arguments override environment variables (FABTUI_TIMEOUT=20), which override the file, which overrides the defaults.
The file is --config, FABTUI_CONFIG or your own (fabtui config path). Invalid settings are reported and ignored.
""",
    ),
    CommandSpec(
        "info",
        "versions, paths, terminal and tools of this machine",
        "Show versions, paths, the terminal and the tools of this machine. Include it in bug reports.",
    ),
    CommandSpec("probes", "list the probes and tests", "List all probes and tests, their requirements and results."),
    CommandSpec(
        "completion",
        "shell completion for bash, zsh or tcsh",
        "Print a script that completes the options of fabtui in a shell.",
        """\
examples:
  fabtui completion bash > ~/.local/share/bash-completion/completions/fabtui
  fabtui completion zsh > ~/.zfunc/_fabtui
""",
    ),
)


_COMMAND_NAMES = [spec.name for spec in COMMANDS]


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

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line with the problem and the help to read."""
        if message.startswith("argument COMMAND: invalid choice"):
            # The value of a misspelled option is taken for the command.
            wrong = _unknown_option(self._words, APP)
            word = message.partition("invalid choice: ")[2].partition(" (choose from ")[0]
            near = nearest(word.strip("'\""), _COMMAND_NAMES) or f"; {_NODES_HINT}"
            message = wrong or f"unknown command {word}{near}"
        self._leave(message, self.prog)

    def _leave(self, message: str, command: str) -> NoReturn:
        text = " ".join("".join(c if c.isprintable() else "?" for c in message).split())
        self.exit(2, f"fabtui: error: {text}; see {command} --help\n")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Return the namespace; unrecognized arguments are reported with the command they were given to."""
        self._words = list(args or ())
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            command = getattr(found, "command", None)
            is_node = command in _WITH_NODES and not any(word.startswith("-") for word in rest)
            problem = f"unrecognized arguments: {' '.join(rest)}" + (f"; {_NODES_HINT}" if is_node else "")
            self._leave(_unknown_option(rest, command or APP) or problem, f"{self.prog} {command or ''}".strip())
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


def build_parser() -> OneLineParser:
    """Return the parser of the whole command line."""
    parser = OneLineParser(
        prog="fabtui",
        usage="fabtui [--nodes SET | --hostfile FILE | --lab NxM] [options]\n       fabtui COMMAND [options]",
        description="Test every GPU of a cluster against every other GPU, live in the terminal, over plain SSH.",
        epilog=_APP_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"fabtui {__version__}", help="show the version")
    _add_options(parser, options_of(APP))
    commands = parser.add_subparsers(
        title="commands", dest="command", prog="fabtui", metavar="COMMAND", parser_class=OneLineParser
    )
    for name, help_, description, epilog in COMMANDS:
        _add_options(commands.add_parser(name, help=help_, description=description, epilog=epilog), options_of(name))
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
        if spec.metavar:
            settings["metavar"] = spec.metavar
        if spec.positional:
            settings |= {"nargs": spec.positional} if spec.positional != "1" else {}
            group.add_argument(spec.name, **settings)
            continue
        if spec.optional:
            settings |= {"nargs": "?", "const": spec.optional}
        group.add_argument(spec.flag, *([spec.short] if spec.short else []), **settings)
