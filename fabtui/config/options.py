"""The option table: argparse, the settings file, environment variables and the documentation are derived from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fabtui.config import values
from fabtui.config.values import Parser, number
from fabtui.errors import InputError, argument
from fabtui.transport.registry import TRANSPORTS

#: How an option is written: a switch takes no value, a list and variables may be repeated, paths follow each other.
Kind = Literal["text", "number", "switch", "list", "paths", "variables"]
Choices = tuple[str, ...] | Callable[[], tuple[str, ...]]

#: The app has no command: its options belong to the command "".
APP = ""
_RECORDED = (APP, "run", "preflight", "serve", "config", "accept")
_LIVE = (*_RECORDED, "watch", "bisect")
#: Commands that ask nodes about running jobs.
_JOB = ("job", "hang")
_NODE = (*_LIVE, *_JOB)
#: The server for assistants has the connection for all of its tools, and the nodes as a limit.
_LINKED = (*_NODE, "mcp")
_LABS = (*_LIVE, "mcp")
_TESTS = (APP, "run", "watch", "serve", "config")
_GROUPS = (*_TESTS, "bisect")
_SCREEN = (APP, "serve", "config", "replay", "read", "resume", "demo")
_RESUMED = (*_TESTS, "resume")
#: Commands with outputs of a session at its end.
_OUTPUTS = (*_RESUMED, "replay")
#: Commands that write files from a session.
_FILES = (*_OUTPUTS, "report")
#: Commands that write a page about a session.
_PAGES = (*_OUTPUTS, "accept")
_CONFIGURED = (
    APP,
    "run",
    "watch",
    "bisect",
    "resume",
    "preflight",
    "accept",
    "serve",
    "mcp",
    *_JOB,
    "config",
    "replay",
    "read",
    "demo",
)
_HOUR = 3600.0
#: The shipped recording with planted faults: what ``--demo`` plays without a name.
DEMO = "h200x4-lab-2x2-faults"
#: Each message size of pairs is a sweep of its own; 8 B to 64 GiB by factors of two are 34 sizes of collectives.
_MAX_PAIR_SIZES = 8
_MAX_COLLECTIVE_SIZES = 40
_TIMES = number(values.seconds, 0.5, _HOUR)
#: The tables of the settings file; keys are bindings, checked by the screen.
TABLES = ("screen", "session", "recording", "keys")


class OptionSpec(NamedTuple):
    """One option."""

    name: str  #: Its name without dashes; also its key in the settings file.
    help: str  #: One line.
    group: str  #: Heading in the help.
    commands: tuple[str, ...]  #: The commands that take it; none for an option of the settings file alone.
    kind: Kind = "text"  #: How it is written.
    metavar: str | None = None  #: What the help shows for its value.
    default: str = ""  #: The default as shown to users.
    choices: Choices = ()  #: The values it takes; none: any.
    parse: Parser | None = None  #: Turns the text into the value of the session option; None: taken as it is.
    field: str = ""  #: The session option it sets.
    needs: tuple[str, ...] = ()  #: It has an effect only with one of these probes.
    table: str = ""  #: Its table in the settings file; none: it cannot be set there.
    example: str = ""  #: A value as written in the settings file.
    file_choices: Choices = ()  #: The values the settings file takes, where those are fewer.
    short: str = ""  #: Its short form (``-q``).
    optional: str = ""  #: Its value may be left out; what that stands for.
    exclusive: str = ""  #: Options with the same mark exclude each other.
    positional: str = ""  #: ``?``, ``*`` or ``1`` for an argument without dashes.
    dashed: bool = False  #: Its value begins with a dash.

    @property
    def argument(self) -> str:
        return self.name.replace("-", "_")

    @property
    def flag(self) -> str:
        return self.name if self.positional else f"--{self.name}"

    @property
    def key(self) -> str:
        """Its table and key in the settings file, or nothing."""
        return f"{self.table}.{self.name}" if self.table else ""

    @property
    def variable(self) -> str:
        """Its environment variable, or nothing. Variables of the ranks have none: one text cannot hold several."""
        if self.kind == "variables" or not (self.table or self.name == "config"):
            return ""
        table = "RECORDING_" if self.table == "recording" else ""
        return f"FABTUI_{table}{self.argument.upper()}"

    @property
    def allowed(self) -> tuple[str, ...]:
        """The values it takes on the command line; none: any."""
        return self.choices() if callable(self.choices) else self.choices

    @property
    def allowed_in_file(self) -> tuple[str, ...]:
        """The values it takes in the settings file; none: any."""
        return (self.file_choices() if callable(self.file_choices) else self.file_choices) or self.allowed


# One argument per line, as the formatter has it, would hide the table.
# fmt: off
_NODES = (
    OptionSpec("nodes", "node set: n[060-067,070], a,b, ^FILE, @GROUP", "nodes", _LINKED, "list", "SET"),
    OptionSpec("hostfile", "host file: one host per line, # comments (-: stdin)", "nodes", _LINKED, "list", "FILE"),
    OptionSpec("exclude", "nodes to exclude, same syntax as --nodes", "nodes", _LINKED, "list", "SET"),
    OptionSpec("jobid", "nodes of your running Slurm jobs: 4711 or 4711,4712", "nodes", _NODE, metavar="ID"),
    OptionSpec("no-job", "do not take the nodes of the job that this runs in", "nodes", _NODE, "switch"),
    OptionSpec("pods", "running pods: train/job-name=llm", "nodes", _NODE, metavar="NAMESPACE/SELECTOR"),
    OptionSpec("lab", "simulate N nodes with M endpoints each on this machine", "nodes", _LABS, "text", "NxM"),
    OptionSpec("lab-fault", "fault to inject into the lab: 'n000:1>n001:2=drop'", "nodes", _LABS, "list", "SPEC"),
)
_CONNECTION = (
    OptionSpec("transport", "how to reach the nodes", "connection", _LINKED, default="ssh",
        choices=lambda: tuple(TRANSPORTS), field="transport", table="session", example='"openssh"',
        file_choices=lambda: tuple(spec.name for spec in TRANSPORTS.values() if spec.configurable)),
    OptionSpec("manifest", "Job of Kubernetes for --transport kubernetes (docs/scale.md)", "connection", _LINKED,
        metavar="FILE", parse=values.manifest, field="manifest"),
    OptionSpec("via", "launcher: kubectl, docker or 'kubectl exec -i {node} --'", "connection", _LINKED,
        metavar="COMMAND", parse=values.launcher, field="via"),
    OptionSpec("wrap", "command on each node to run in: 'docker exec -i train'", "connection", _LINKED,
        metavar="COMMAND", parse=values.wrapper, field="wrap"),
    OptionSpec("ssh-config", "ssh_config file to use instead of your own", "connection", _LINKED, metavar="FILE",
        parse=values.readable_file, field="ssh_config", table="session", example='"~/.ssh/cluster"'),
    OptionSpec("host-key-policy", "how host keys are checked", "connection", _LINKED, default="config",
        choices=("config", "strict", "accept-new", "off"), field="host_key_policy", table="session",
        example='"strict"'),
    OptionSpec("remote-python", "Python interpreter with PyTorch on the nodes", "connection", _LINKED, metavar="PATH",
        default="search", parse=values.interpreter, field="remote_python", table="session",
        example='"/opt/venv/bin/python3"'),
    OptionSpec("connect-timeout", "timeout for connecting to one node", "connection", _LINKED, "number", "SECONDS",
        "10", parse=_TIMES, field="connect_timeout", table="session", example="5"),
    OptionSpec("lease", "nodes clean up after this long without contact", "connection", _LINKED, "number", "SECONDS",
        "10", parse=number(values.seconds, 3.0, _HOUR), field="lease", table="session", example="30"),
)
_MEASURE = (
    OptionSpec("probes", "probes and tests; fabtui probes lists them", "tests", _TESTS, "list", "LIST", "all",
        parse=values.probes, field="probes", table="session", example='["ping", "p2p"]'),
    OptionSpec("read-only", "passive probes only: no tests, no ranks, no GPU memory", "tests", _LIVE, "switch",
        field="read_only", table="session", example="true"),
    OptionSpec("soak", "after the sweep, load links and GPUs for this time", "tests", _TESTS, "number",
        "SECONDS", parse=number(values.seconds, 1.0, 7 * 24 * _HOUR), field="soak"),
    OptionSpec("storage-path", "file or folder of small files that --probes storage reads", "tests", _TESTS,
        metavar="PATH", parse=values.remote_file, field="storage_path", needs=("storage",)),
    OptionSpec("perftest-args", "further options of --probes perftest: '-q 4 -m 4096'", "tests", _TESTS,
        metavar="OPTIONS", parse=values.perftest_options, field="perftest_options", needs=("perftest",), dashed=True),
    OptionSpec("timeout", "timeout for one test", "tests", _GROUPS, "number", "SECONDS", "10", parse=_TIMES,
        field="timeout", table="session", example="20"),
    OptionSpec("iters", "maximum number of timed iterations per test", "tests", _GROUPS, "number", "N", "20",
        parse=number(values.count, 1, 100_000), field="iters", table="session", example="50"),
    OptionSpec("warmup", "warm-up iterations per test", "tests", _GROUPS, "number", "N", "2",
        parse=number(values.count, 0, 100_000), field="warmup", table="session", example="5"),
    OptionSpec("watch-rate", "pairs per second in watch mode", "tests", _TESTS, "number", "PAIRS",
        "2, or endpoints / 8", parse=number(values.ratio, 0.01, 10_000.0), field="watch_rate"),
    OptionSpec("ab", "run every test once per value: NCCL_P2P_DISABLE=0,1", "tests", _TESTS, metavar="VAR=A,B",
        parse=values.comparison, field="compare", needs=("p2p", "all_reduce")),
    OptionSpec("layers", "pair layers to test: world (all ranks), p2p (two ranks)", "pairs", _TESTS, "list", "LIST",
        "world,p2p", parse=values.layers, field="layers", needs=("p2p",), table="session", example='["world", "p2p"]'),
    OptionSpec("mode", "pairs: full, sampled, adaptive, quick", "pairs", _TESTS, default="auto",
        choices=("auto", "quick", "adaptive", "sampled", "full"), field="mode", needs=("p2p",), table="session",
        example='"sampled"'),
    OptionSpec("pair", "test only this pair, both ways: 'n060:3>n061:5'", "pairs", _TESTS, "list",
        "A>B", parse=values.pairs, field="pairs", needs=("p2p",), exclusive="pair"),
    OptionSpec("pairs-from", "test only the pairs of a file: one A>B per line (-: stdin)", "pairs", _TESTS,
        metavar="FILE", parse=values.pair_list, field="pairs", needs=("p2p",), exclusive="pair"),
    OptionSpec("bytes", "message sizes: 256M or 8M,256M", "pairs", _TESTS, metavar="SIZES", default="256M; 4M on CPUs",
        parse=number(values.sizes, _MAX_PAIR_SIZES), field="sizes", table="session", example='"64M"'),
    OptionSpec("isolated", "one pair at a time, without other traffic", "pairs", _TESTS, "switch", field="isolated",
        needs=("p2p",)),
    OptionSpec(
        "bidirectional", "also test both directions at once", "pairs", _TESTS, "switch", field="both", needs=("p2p",)),
    OptionSpec("limit-share", "flag pairs below this share of the link limit; 0: none", "pairs", _TESTS,
        "number", "PERCENT", "50; 30 for P2P over PCIe", parse=values.percentage, field="limit_share", needs=("p2p",),
        table="session", example="40"),
    OptionSpec("collectives", "comma-separated collectives, or all", "collectives", _GROUPS, "list", "LIST",
        "all_reduce", parse=values.collectives, field="collectives", needs=("all_reduce",)),
    OptionSpec("sizes", "message sizes: 1M,64M or 8-1G or 8-1G:4", "collectives", _GROUPS, metavar="SIZES",
        default="three up to --bytes", parse=number(values.sizes, _MAX_COLLECTIVE_SIZES), field="collective_sizes",
        needs=("all_reduce",)),
    OptionSpec("groups", "collectives over the first 2, then 4, ... GPUs: 2,4,8,16", "collectives", _TESTS,
        metavar="COUNTS", parse=values.group_sizes, field="group_sizes", needs=("all_reduce",)),
    OptionSpec("engine", "library of the ranks; auto: nccl on GPUs, else gloo", "ranks", _GROUPS, default="auto",
        choices=("auto", "nccl", "gloo"), field="engine", table="session", example='"nccl"'),
    OptionSpec("env", "variable of the ranks: NCCL_DEBUG=INFO", "ranks", (*_RESUMED, "bisect"), "variables", "K=V",
        parse=values.variables, field="env", table="session", example='{ NCCL_SOCKET_IFNAME = "bond0" }'),
    OptionSpec("ranks-per-node", "CPU ranks per node without GPUs", "ranks", _GROUPS, "number", "N", "1",
        parse=number(values.count, 1, 64), field="ranks_per_node", table="session", example="4"),
    OptionSpec("force", "also test GPUs that other processes use", "ranks", _GROUPS, "switch", field="force"),
    OptionSpec("all-gpus", "also test GPUs that Slurm gave to other jobs", "ranks", _GROUPS, "switch",
        field="all_gpus"),
    OptionSpec("keep-warm", "keep the ranks on the GPUs after a sweep, for fast retests", "ranks", _TESTS, "switch",
        field="keep_warm", table="session", example="true"),
)
_RECORD = (
    OptionSpec("record", "path of the recording", "output", (*_RECORDED, "bisect", "resume", "demo"), metavar="FILE",
        default="a new file in the state folder", exclusive="record"),
    OptionSpec("no-record", "write no recording", "output", (*_RECORDED, "bisect", "demo"), "switch",
        exclusive="record"),
    OptionSpec("no-history", "do not add to the site's history", "output", (*_RECORDED, "resume"), "switch"),
    OptionSpec(
        "history", "keep what sessions saw of each component (fabtui history)", "output", (), "switch", None, "true",
        table="recording", example="false"),
    OptionSpec(
        "keep", "record every session", "output", (), "switch", None, "true", table="recording", example="false"),
    OptionSpec("folder", "folder for recordings", "output", (), default="the state folder", table="recording",
        example='"/scratch/me/fabtui"'),
)
_OUTPUT = (
    OptionSpec("csv", "write the measurements as CSV", "output", _OUTPUTS, metavar="FILE"),
    OptionSpec("json", "write the whole session as JSON", "output", _OUTPUTS, metavar="FILE"),
    OptionSpec("table", "write the collectives tables as CSV", "output", _OUTPUTS, metavar="FILE"),
    OptionSpec("prom", "write metrics for node_exporter: FILE.prom", "output", _FILES, metavar="FILE"),
    OptionSpec("prom-pairs", "with --prom: also a series for each pair", "output", _FILES, "switch"),
    OptionSpec("prom-label", "with --prom: label of all series: fabric=rack1", "output", _FILES, "list", "K=V"),
    OptionSpec("junit", "write rules and classes as JUnit XML", "output", (*_FILES, "accept"), metavar="FILE"),
    OptionSpec("report", "write a one-page report (.html, .md)", "output", _PAGES, metavar="FILE"),
    OptionSpec("planner", "write node bandwidths for FASOP and AMP", "output", _FILES, metavar="FILE"),
)
_DISPLAY = (
    OptionSpec("theme", "colour theme: of fabtui, of Textual, or a file of your own", "screen", _SCREEN, metavar="NAME",
        default="dark", table="screen", example='"dark"'),
    OptionSpec("colors", "number of colours of the terminal", "screen", _SCREEN, default="auto",
        choices=("auto", "24", "256", "16", "none"), table="screen", example='"auto"'),
    OptionSpec("baseline", "recording or JSON to compare with (layer 8)", "screen", _SCREEN, metavar="FILE"),
    OptionSpec("notify", "how the terminal reports changes, beside its title", "screen",
        (APP, "config", "resume"), default="bell", choices=("off", "bell", "osc9", "osc777"), table="screen",
        example='"bell"'),
    OptionSpec("ascii", "use ASCII characters only", "screen",
        (*_SCREEN, "run", "bisect", "preflight", "history", *_JOB), "switch", table="screen", example="true"),
)
_RUN = (
    OptionSpec("confirm", "after the sweep, test what the first five findings blame", "summary", ("run",), "switch",
        field="confirm", needs=("p2p",)),
    OptionSpec("fail-on-past", "exit code 1 for what was bad within the session, too", "summary",
        ("run", "watch"), "switch", field="fail_on_past"),
    OptionSpec("watch", "after the sweep, retest pairs for this time", "summary", ("run",), "number", "SECONDS"),
    OptionSpec("text", "for screen readers and logs: every layer, no live line", "summary", ("run",), "switch"),
    OptionSpec("grids", "grids to print: health,p2p,world,... or all", "summary", ("run", "resume", "replay"),
        metavar="LIST"),
    OptionSpec("text", "no screen: print the summary of run, and write files", "summary", ("resume", "replay"),
        "switch"),
    OptionSpec("quiet", "no progress on stderr", "summary", ("run", "bisect", "resume", "preflight", "accept"),
        "switch", short="-q"),
)
_WATCH = (
    OptionSpec("every", "time from the start of one round to the next", "rounds", ("watch",), "number", "SECONDS",
        "900"),
    OptionSpec("budget", "maximum time of a round", "rounds", ("watch",), "number", "SECONDS", "120"),
    OptionSpec("once", "one round, for cron and timers of systemd", "rounds", ("watch",), "switch"),
    OptionSpec("passive", "test nothing: observe jobs, ports and NVLinks", "rounds", ("watch",), "switch"),
)
_BISECT = (
    OptionSpec("below", "busbw in GB/s below which a group is slow", "search", ("bisect",), "number", "GB/S",
        "compared with other groups", parse=number(values.ratio, 1e-6, 1e6), field="bisect_below"),
    OptionSpec("json", "write the search as JSON (-: stdout)", "search", ("bisect",), metavar="FILE", optional="-"),
)
_PREFLIGHT = (
    OptionSpec("all", "print all facts and all evidence", "report", ("preflight",), "switch"),
    OptionSpec(
        "baseline", "report changes since this JSON file or recording", "report", ("preflight", "gate"),
        metavar="FILE"),
    OptionSpec("build", "write the gate as one file for nodes without fabtui", "report", ("gate",), metavar="FILE"),
    OptionSpec("expect", "expected value of a fact: gpus='8 x H200', numa_nodes=2", "report", ("preflight",), "list",
        "FACT=VALUE"),
    OptionSpec("master", "address and port of rank 0, tried from each node", "report", ("preflight",),
        metavar="HOST:PORT", parse=values.host_and_port, field="master"),
    OptionSpec("fail-on", "exit with 1 for findings at least this severe", "report", ("preflight",), default="warn",
        choices=("bad", "warn", "note")),
    OptionSpec("json", "write everything as JSON (-: stdout)", "report", ("preflight",), metavar="FILE", optional="-"),
    OptionSpec("csv", "write the facts as CSV (-: stdout)", "report", ("preflight",), metavar="FILE", optional="-"),
)
_ACCEPT = (
    OptionSpec("profile", "list of items: a TOML file, clustermax or slurm-partition", "output", ("accept",),
        metavar="FILE"),
    OptionSpec("file", "recording to judge, instead of nodes to test", "", ("accept",), metavar="FILE", positional="?"),
)
_REPLAY = (
    OptionSpec("file", "recording, or file that read knows; none: list them", "", ("replay",),
        metavar="FILE", positional="?"),
    OptionSpec("demo", "instead of a file, a recording that ships with fabtui", "input", ("replay", "report"),
        metavar="NAME", default=DEMO, optional=DEMO),
    OptionSpec("speed", "speed factor, or max", "replay", ("replay", "demo"), metavar="X", default="1"),
    OptionSpec("film", "the film; none: list them", "", ("demo",), metavar="FILM", positional="?"),
)
_READ = (
    OptionSpec("files", "file (also .gz), folder, or - for stdin", "", ("read",), metavar="FILE", positional="*"),
    OptionSpec("as", "format, instead of detecting it (see --list)", "input", ("read",), metavar="KIND"),
    OptionSpec("list", "list the formats", "input", ("read",), "switch"),
    OptionSpec("json", "print one JSON object per file, one per line", "output", ("read",), "switch"),
    OptionSpec("csv", "write the measurements as CSV", "output", ("read",), metavar="FILE"),
    OptionSpec("open", "show the measurements in the app", "output", ("read",), "switch"),
)
_REPORT = (
    OptionSpec("files", "recording, JSON, CSV, or any file that read knows (-: stdin)", "", ("report",),
        metavar="FILE", positional="*"),
    OptionSpec("out", "file to write: .html or .md (-: Markdown on stdout)", "output", ("report",), metavar="FILE",
        default="report.html", short="-o"),
    OptionSpec("baseline", "earlier recording, CSV or JSON to compare with", "output", ("report",), metavar="FILE"),
    OptionSpec("site", "name of the site, for the head of the report", "output", ("report",), metavar="NAME"),
    OptionSpec("svg", "write pictures: a file (.svg), or a folder for all", "pictures", ("report",), metavar="PATH"),
    OptionSpec("png", "write pictures: a file (.png), or a folder for all", "pictures", ("report",), metavar="PATH"),
    OptionSpec("layer", "layers to draw: p2p,world, or curves of the collectives", "pictures", ("report",),
        metavar="NAMES", default="all; p2p for a file"),
    OptionSpec("mode", "colours by verdict, or by value", "pictures", ("report",), choices=("verdict", "value"),
        default="both; verdict for a file"),
)
_WORKING_NODES = (
    OptionSpec("file", "recording, CSV, JSON, or an output that read knows", "", ("nodes",),
        metavar="FILE", positional="1"),
    OptionSpec("order", "order the nodes so that no neighbours have a slow link", "order",
        ("nodes",), "switch"),
    OptionSpec("for", "ring (data parallel) or pipeline (its ends do not meet)", "order", ("nodes",),
        default="ring", choices=("ring", "pipeline")),
    OptionSpec("slurm-hostfile", "write one host per rank, for SLURM_HOSTFILE", "order", ("nodes",), metavar="FILE"),
    OptionSpec("hostfile", "write the nodes as a host file of MPI", "output", ("nodes",), metavar="FILE"),
    OptionSpec("strays", "write the stray bad pairs, for run --pairs-from", "output", ("nodes",), metavar="FILE"),
    OptionSpec("strict", "leave nodes out until no pair of the others is bad", "nodes", ("nodes",),
        "switch"),
)
_RESUME = (
    OptionSpec("file", "recording of the session", "", ("resume",), metavar="FILE", positional="1"),
    OptionSpec("yes", "do not ask before it begins", "output", ("resume", "share"), "switch"),
)
_SHARE = (
    OptionSpec("file", "recording, CSV or JSON of a session", "", ("share",), metavar="FILE", positional="1"),
    OptionSpec("check", "write nothing: list what still looks like a name or secret", "output", ("share",),
        "switch"),
    OptionSpec("out", "the copy", "output", ("share",), metavar="FILE", default="NAME-shared beside it", short="-o"),
    OptionSpec("also", "also replace this word, such as the name of a site", "output", ("share",), "list", "WORD"),
    OptionSpec("salt", "secret text; the same text gives the same names", "output", ("share",),
        metavar="TEXT", default="random"),
)
_DIFF = (
    OptionSpec("before", "earlier recording, CSV or JSON (-: stdin)", "", ("diff",), metavar="FILE", positional="1"),
    OptionSpec("after", "later one", "", ("diff",), metavar="FILE", positional="1"),
    OptionSpec("json", "write everything as JSON (-: stdout)", "output", ("diff", "history"), metavar="FILE",
        optional="-"),
    OptionSpec("csv", "write changed pairs as CSV (-: stdout)", "output", ("diff",), metavar="FILE", optional="-"),
)
_EXPLAIN = (
    OptionSpec("what", "rule, error, Xid, text, log file, folder, or - for stdin", "", ("explain",),
        metavar="WHAT", positional="*"),
    OptionSpec("list", "list the rules and errors", "", ("explain",), "switch"),
)
_RUNNING_JOB = (
    OptionSpec("job", "job of Slurm; without one, the job that this runs in", "", ("job", "hang"),
        metavar="JOBID", positional="?"),
    OptionSpec("logs", "logs: folders or files, such as '../log/{job}/{node}.*'", "job", ("job", "hang"),
        "paths", metavar="PATH", default="where Slurm writes them, and beside it"),
    OptionSpec("idle", "time without output after which the job is silent", "job", ("job",), "number",
        "SECONDS", "180, or five printed iterations"),
    OptionSpec("no-links", "read only what is visible here: ask no node", "job", ("job",), "switch"),
    OptionSpec("wait", "wait until the job hangs, and report once", "hang", ("hang",), "switch"),
    OptionSpec("save", "keep all evidence in a recording", "hang", ("hang",), metavar="FILE"),
    OptionSpec("on-hang", "command to run on this machine, once per hang", "hang", ("hang",), metavar="COMMAND"),
    OptionSpec("source", "ask one; flight: ranks write dumps", "hang", ("hang",), metavar="NAME", default="all",
        choices=("ras", "stacks", "flight", "log", "inspector", "kernel")),
    OptionSpec("yes", "do not ask before ranks write their dumps", "hang", ("hang",), "switch"),
    OptionSpec("once", "print one report; no screen", "output", ("job",), "switch"),
    OptionSpec("follow", "print one report, then each change until the job ends", "output", ("job",), "switch"),
    OptionSpec("json", "print one JSON object", "output", (*_JOB, "nodes", "gate"), "switch"),
)
_SERVE = (
    OptionSpec("port", "port on 127.0.0.1, 0: any free port", "server", ("serve",), "number", "N", "8000"),
    OptionSpec("replay", "serve a recording instead of nodes", "server", ("serve",), metavar="FILE"),
    OptionSpec("speed", "with --replay: speed factor, or max", "server", ("serve",), metavar="X", default="1"),
)
_MCP = (
    OptionSpec("allow-tests", "let assistants test GPUs and links: the tool run", "tests", ("mcp",), "switch"),
    OptionSpec("budget", "with --allow-tests: maximum node-seconds of all tests", "tests", ("mcp",), "number",
        "NODE-SECONDS", "3600"),
)
_LAB = (
    OptionSpec("action", "what to do", "", ("lab",), choices=("up", "fault", "heal", "status", "down"), positional="1"),
    OptionSpec("faults", "faults to plant, or places to heal: n003.eth1=slow-in:6MB", "", ("lab",), metavar="FAULT",
        positional="*"),
    OptionSpec("name", "name of the lab", "lab", ("lab",), metavar="NAME", default="lab"),
    OptionSpec("nodes", "up: number of nodes", "lab", ("lab",), "number", "N", "8"),
    OptionSpec("rails", "up: number of rails", "lab", ("lab",), "number", "N", "2"),
    OptionSpec("endpoints", "up: CPU ranks of each node", "lab", ("lab",), "number", "N", "one for each rail"),
    OptionSpec("gpu", "up: the nodes share the GPUs of this machine", "lab", ("lab",), "switch"),
    OptionSpec("loopback", "up: loopback addresses, even as root", "lab", ("lab",), "switch"),
    OptionSpec("list", "fault: list the kinds of faults", "lab", ("lab",), "switch"),
)
_HISTORY = (
    OptionSpec("subject", "node, endpoint, port or identity; or add FILE ...", "",
        ("history",), metavar="SUBJECT", positional="*"),
    OptionSpec("since", "since a date, or a time ago: 2026-09-01, 30d, 2w, 1y", "history", ("history",),
        metavar="TIME", default="30d; all for a subject"),
    OptionSpec("file", "another history file, in place of this site's", "history", ("history",), metavar="FILE"),
    OptionSpec("labs", "history of the labs on this machine, kept in its own file", "history", ("history",), "switch"),
    OptionSpec("csv", "write the components, or the days of one, as CSV (-: stdout)", "output", ("history",),
        metavar="FILE", optional="-"),
)
_OTHER = (
    OptionSpec("action", "what to do", "", ("config",), choices=("show", "set", "validate", "init", "path"),
        positional="1"),
    OptionSpec("change", "for set: the setting and its value", "", ("config",), metavar="KEY VALUE", positional="*"),
    OptionSpec("action", "write a template of a probe of your own", "", ("probes",), metavar="new", positional="?"),
    OptionSpec("name", "name of the new probe", "", ("probes",), metavar="NAME", positional="?"),
    OptionSpec("topic", "the command", "", ("help",), metavar="COMMAND", positional="?"),
    OptionSpec("all", "list all commands", "", ("help",), "switch"),
    OptionSpec("schema", "JSON Schema: session, preflight, diff, planner, history, job", "", ("help",), metavar="NAME",
        default="session", optional="session"),
    OptionSpec("shell", "the shell", "", ("completion",), choices=("bash", "zsh", "fish", "tcsh"), positional="1"),
    OptionSpec("config", "settings file", "settings", _CONFIGURED, metavar="FILE", default="fabtui config path"),
)
# fmt: on

#: All options, in the order of the help. To add one, add a row.
OPTIONS: list[OptionSpec] = [
    *(*_REPLAY[:1], *_READ, *_REPLAY[1:], *_DIFF, *_SERVE, *_NODES, *_CONNECTION, *_MEASURE, *_OUTPUT, *_RECORD),
    *(
        *_DISPLAY,
        *_RUNNING_JOB,
        *_WORKING_NODES,
        *_SHARE,
        *_RESUME,
        *_EXPLAIN,
        *_RUN,
        *_WATCH,
        *_BISECT,
        *_PREFLIGHT,
        *_LAB,
        *_ACCEPT,
    ),
    *(*_OTHER, *_REPORT, *_HISTORY, *_MCP),
]
#: Options that name a file to be written from a session.
OUTPUTS = tuple(spec.argument for spec in _OUTPUT if spec.metavar == "FILE")
#: Options of these files.
OUTPUT_OPTIONS = tuple(spec.argument for spec in _OUTPUT)


def options_of(command: str) -> list[OptionSpec]:
    return [spec for spec in OPTIONS if command in spec.commands]


def settings() -> dict[str, OptionSpec]:
    return {spec.key: spec for table in TABLES for spec in OPTIONS if spec.table == table}


def session_changes(given: dict[str, Any]) -> dict[str, Any]:
    """Return the session options that differ from their defaults, of arguments by name as on the command line.

    Raises:
        InputError: A value is not valid, or options exclude each other.
    """
    changes: dict[str, Any] = {}
    for spec in OPTIONS:
        if spec.field and spec.argument in given:
            value = given[spec.argument]
            changes[spec.field] = value if spec.parse is None else spec.parse(value, argument(spec.name, spec.flag))
    if changes.get("read_only"):
        changes |= _passive(given, changes)
    else:
        _check_together(given, changes)
    sizes = changes.pop("sizes", ())
    if sizes:
        changes["bytes"] = sizes[-1]
    if len(sizes) > 1:
        changes["sizes"] = sizes
    return changes


def _passive(given: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a session that only reads.

    Raises:
        InputError: Something else is asked for.
    """
    for name in ("pair", "pairs_from", "ab", "confirm", "isolated", "bidirectional", "groups"):
        if name in given:
            raise InputError(f"--read-only tests nothing; it excludes --{name.replace('_', '-')}")
    return {"probes": values.passive_probes(changes.get("probes")), "preflight_only": True}


def _check_together(given: dict[str, Any], changes: dict[str, Any]) -> None:
    if "compare" in changes and changes["compare"][0] in changes.get("env", ()):
        raise InputError(f"--ab and --env both set {changes['compare'][0]}")
    # The probes that options need and that run by default.
    probes = set(changes.get("probes", ("p2p", "all_reduce")))
    for spec in OPTIONS:
        if spec.field and spec.needs and spec.argument in given and not set(spec.needs) & probes:
            where = argument("probes")
            why = f"which {where} leaves out" if "probes" in changes else f"as in {where} all,{spec.needs[0]}"
            raise InputError(f"{argument(spec.name, spec.flag)} needs the probe {' or '.join(spec.needs)}, {why}")
    if "storage" in changes.get("probes", ()) and "storage_path" not in changes:
        raise InputError(f"{argument('probes')} storage needs a file to read: --storage-path /scratch/file")
    for name in ("isolated", "bidirectional"):
        if name in given and "p2p" not in changes.get("layers", ("p2p",)):
            raise InputError(f"{argument(name)} applies to the layer p2p, which {argument('layers')} leaves out")
