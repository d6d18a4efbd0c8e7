"""The parser of the command line, built from the table of commands and the option table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from fabtui import __version__
from fabtui.config.file import nearest
from fabtui.config.options import APP, OPTIONS, OptionSpec, options_of

_NODES_HINT = "nodes are given as --nodes n060,n061"
#: Commands that open links to nodes, given as --nodes.
LIVE = (None, "run", "watch", "preflight", "serve", "job", "watchdog", "ras", "flight", "stacks")


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

exit codes of fabtui and run: 0 everything ok; 1 something is slow, failed or timed out, or a
finding is bad; 2 bad usage or input; 3 something could not be tested; 130 interrupted
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

exit codes: 0 everything ok; 1 something is slow, failed or timed out, or a finding is bad;
2 bad usage or input; 3 something could not be tested; 130 interrupted (what was measured until
then is written)
""",
    ),
    CommandSpec(
        "watch",
        "repeat a small sweep, and keep a file of metrics up to date",
        "Repeat a small sweep (--mode quick) within a time budget, and write metrics for node_exporter after each.",
        """\
examples:
  fabtui watch --nodes @rack1 --prom /var/lib/node_exporter/fabtui.prom
  fabtui watch --nodes @rack1 --prom fabtui.prom --every 3600 --budget 300 --bytes 64M
  fabtui watch --nodes @rack1 --prom fabtui.prom --once    for cron and timers of systemd
  fabtui watch --lab 1x2 --prom /tmp/fabtui.prom --every 20 --budget 15

Between rounds nothing runs on the nodes, and GPUs in use are not tested. A round that fails, or takes longer than its
budget, leaves the values of the last good one: fabtui_run_timestamp_seconds is their age, and
fabtui_watch_round_state what the latest round came to. No round is recorded.

exit codes: 0 ended by SIGTERM; 130 by Ctrl+C; 2 bad usage or input; with --once those of run, 3 if the round failed
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
        "resume",
        "continue a session that was cut short",
        "Continue a recorded session with the pairs that are left: same nodes, options and transport.",
        """\
examples:
  fabtui resume session.jsonl.gz               in the app
  fabtui resume session.jsonl.gz --text        without a screen, for scripts
  fabtui resume session.jsonl.gz --text --csv pairs.csv

Pairs with a result are not tested again, unless they failed; nodes are inspected and pinged again. The recording is not
changed: the new one begins with a copy of it, and replays the whole session.

exit codes: those of run; 2 also if nothing is left to test; 130 not confirmed, or interrupted
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
        "report",
        "write a one-page report, as HTML or Markdown",
        "Write a report of a session, or of outputs of other tools: one HTML file without network access, or Markdown;"
        " or pictures of it.",
        """\
examples:
  fabtui report session.jsonl.gz               report.html: verdict, findings, layers, collectives, preflight
  fabtui report session.jsonl.gz -o report.md  for a ticket
  fabtui report session.jsonl.gz -o -          Markdown on standard output
  fabtui report now.jsonl.gz --baseline before.jsonl.gz
  fabtui report nccl.log ibstat.txt -o report.html
  fabtui report session.jsonl.gz --svg pictures/ --png pictures/
  fabtui report session.jsonl.gz --png p2p.png --layer p2p --mode value

exit codes: those of run for a session; for other files 0 all formats recognised; 2 bad usage or input; 3 a format was
not recognised
""",
    ),
    CommandSpec(
        "job",
        "watch a job: state, logs, GPUs, settings, iteration times, what is wrong",
        "Watch a running job, or report on one that has ended, from its logs, from Slurm and from its nodes.",
        """\
examples:
  fabtui job 4711                              the job on the screen; as text where there is no terminal
  fabtui job 4711 --once                       one report as text: findings, nodes, iterations, ends of the logs
  fabtui job 4711 --conf _00_conf.sh           also compare what the nodes print with a configuration file
  fabtui job 4711 --logs '../log/{job}' --follow
  fabtui job --logs /scratch/me/logs --once    logs without Slurm
  fabtui job 4711 --once --json | jq .findings

Nothing is started or changed on the nodes, and Slurm is asked at most every 5 s. The configuration file is not run.

exit codes: 0 nothing is wrong; 1 something is wrong, the job hangs, failed or was cancelled; 2 bad usage or input;
3 something could not be read; 130 interrupted
""",
    ),
    CommandSpec(
        "watchdog",
        "watch a running job; report once when it hangs, and who is behind",
        "Watch a running job until it ends; when it hangs, collect evidence and report which rank is behind.",
        """\
examples:
  fabtui watchdog 4711                         a job of Slurm: its logs, its nodes, NCCL RAS
  fabtui watchdog --nodes n060,n061 --logs '/scratch/me/run7/*.log'
  fabtui watchdog 4711 --on-hang 'mail -s "$FABTUI_FINDING" me@site < "$FABTUI_REPORT"'
  fabtui watchdog 4711 --once || scancel 4711  end after the first hang

A hang needs two of six signals: no output, no iteration, GPUs that spin, no traffic, RAS counts that stand and
differ, a timeout of PyTorch's watchdog. The command gets FABTUI_JOB, FABTUI_NODES, FABTUI_FINDING and
FABTUI_REPORT (a JSON file). fabtui itself changes nothing: it prints commands, and runs none of them.

exit codes: 0 the job has ended and did not hang; 1 it hung; 2 bad usage or input; 3 nothing of it could be read;
130 interrupted
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
        "flight",
        "flight recorder dumps of a running job, and which rank is behind",
        "Ask the ranks of a running job for their flight recorder dumps (PyTorch), and name the ranks that are behind.",
        """\
examples:
  fabtui flight --nodes n060,n061              all nodes of the job; asks before it makes ranks write
  fabtui flight --nodes n060,n061 --yes        without asking, for scripts
  fabtui flight --yes                          on a node of the job, in its pod or container

The job must have been started with TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr and TORCH_FR_BUFFER_SIZE=2000. Each rank
writes one file on its node and goes on. Unlike RAS, the flight recorder sees send and recv.

exit codes: 0 no rank is behind; 1 a rank is behind; 2 bad usage or input; 3 no rank gave a dump; 130 not confirmed
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
        "order",
        "order of the nodes that keeps slow links between neighbours out",
        "Order the nodes of a session so that the slowest neighbours of a ring or a pipeline are as fast as possible.",
        """\
examples:
  fabtui order session.jsonl.gz                a ring over the nodes, and what it gains
  fabtui order session.jsonl.gz --for pipeline --hostfile hosts
  fabtui order pairs.csv --slurm-hostfile ranks
  SLURM_HOSTFILE=ranks srun --distribution=arbitrary ./train.sh

Nodes with the same GPUs follow each other. Nodes without a passing test to another node are left out.

exit codes: 0 printed; 2 bad usage or input, or no two nodes were tested
""",
    ),
    CommandSpec(
        "share",
        "a copy of a session without names, addresses and serial numbers",
        "Copy a recording, CSV or JSON with hashes in place of hosts, users, addresses, GUIDs and serial numbers.",
        """\
examples:
  fabtui share session.jsonl.gz                show what is replaced, ask, write a copy beside it
  fabtui share session.jsonl.gz -o bug.jsonl.gz --also mysite
  fabtui share pairs.csv --salt "$SECRET" --yes

The original is not changed. The copy replays, reads and diagnoses as the original does: n060 becomes for example h071,
with the order and the groups of the names. What might be a name and was not recognised is listed: look at it.

exit codes: 0 the copy was written; 2 bad usage or input; 130 not confirmed
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
        "lab",
        "nodes on this machine that stand until lab down: break them, and watch it",
        "Make nodes and networks on this machine, plant faults in them and heal them, while other commands watch.",
        """\
examples:
  fabtui lab up --nodes 8 --rails 2            prints the command that tests its nodes
  fabtui lab fault --list                      all kinds of faults
  fabtui lab fault n003.eth1=slow-in:6MB n005=stop
  fabtui lab fault 'n001>n002=drop'            one direction between two nodes
  fabtui lab status                            labs, and the faults that are planted
  fabtui lab heal n005                         what is planted there; without a place, everything
  fabtui lab down                              ends and removes all of it

As root, nodes are network namespaces with rails, a router and a management network. Without root they are SSH servers
on loopback addresses, which have only the faults stop and down of nodes. The network of this machine stays as it is.

exit codes: 0 done; 2 bad usage or input, or the lab could not be made
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
    CommandSpec(
        "probes",
        "list the probes and tests; write a template of one",
        "List all probes and tests, what they need and what they yield, or write a template of your own.",
        """\
examples:
  fabtui probes                                all of them
  fabtui probes new scratch                    a probe that runs, and its test, to change
""",
    ),
    CommandSpec(
        "schema",
        "JSON Schemas of the JSON files",
        "Print the JSON Schema (2020-12) of what --json of run, preflight or diff, or --planner writes.",
        """\
examples:
  fabtui schema > session.schema.json
  fabtui schema diff | jq .properties.pairs
""",
    ),
    CommandSpec(
        "completion",
        "shell completion for bash, zsh, fish or tcsh",
        "Print a script that completes the options of fabtui in a shell.",
        """\
examples:
  fabtui completion bash > ~/.local/share/bash-completion/completions/fabtui
  fabtui completion zsh > ~/.zfunc/_fabtui     # fpath+=~/.zfunc before compinit in ~/.zshrc
  fabtui completion fish > ~/.config/fish/completions/fabtui.fish
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
