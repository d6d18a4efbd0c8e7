"""Session options."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fabtui.transport.connector import ConnectorOptions
from fabtui.transport.framed_link import Limits
from fabtui_node.registry import DEFAULT

#: Time (s) without output after which a job counts as silent where ``--idle`` is not given.
USUAL_IDLE = 180.0
#: Options of this machine, or of this part of a session.
_NOT_RECORDED = ("record", "resumed", "history", "query", "probe_folder", "manifest")
#: Options that are those of the connector as well.
_SHARED = (
    *("transport", "ssh_config", "remote_python", "host_key_policy", "connect_timeout", "lease", "fallback", "job"),
    *("placements", "manifest", "via", "wrap"),
)
#: The layers of pairs, in the order they are tested.
ALL_LAYERS = ("world", "p2p")
MIB = 1024 * 1024
#: Heartbeats of all nodes per second from which on each node has fewer.
_BEATS = 256
#: Message size where ``--bytes`` is not given, by engine; GPUs have the other.
DEFAULT_BYTES = {"gloo": 4 * MIB}
USUAL_BYTES = 256 * MIB


class JobQuery(NamedTuple):
    """Question about a job: where its logs are, and what counts as silence."""

    job: str  #: The job's id; "" for logs without a scheduler.
    #: Where the logs are (`fabtui.diagnosis.job.logs.job_logs.pattern_of`); none for where Slurm puts them.
    logs: tuple[str, ...] = ()
    idle: float = USUAL_IDLE  #: Time (s) without output after which the job counts as silent.
    nodes: tuple[str, ...] = ()  #: Names of the nodes; empty for those that Slurm or the logs name.
    #: Whether an assistant gets the answer: hidden files, and outputs of other users' jobs, are not read for it.
    assistant: bool = False


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session."""

    hosts: tuple[str, ...] = ()  #: The nodes, in order, as the user names them; empty with ``lab``.
    probes: tuple[str, ...] | None = None  #: Which probes and tests run; None: those of `fabtui_node.registry.DEFAULT`.
    #: Message size of p2p and the largest of all_reduce; None: 256 MiB on GPUs, 4 MiB on CPU ranks.
    bytes: int | None = None
    timeout: float = 10.0  #: Deadline of one test (s); a dead pair costs this much.
    warmup: int = 2  #: Iterations before timing begins.
    iters: int = 20  #: Maximum number of timed iterations; fewer if they take long.
    transport: Literal["ssh", "openssh", "local", "srun", "via", "flux", "mpirun", "kubernetes"] = "ssh"
    fallback: str = ""  #: Transport for nodes that ``transport`` does not reach, or "".
    origin: str = ""  #: One line with the nodes and where their names are from, or "".
    job: str = ""  #: The job or jobs of Slurm whose nodes these are, or "".
    query: JobQuery | None = None  #: What is asked about the job in the view of jobs, or None for the defaults.
    #: Options of srun that select the job and the node, by node; empty outside of Slurm.
    placements: dict[str, tuple[str, ...]] = field(default_factory=dict)
    manifest: str = ""  #: Text of the manifest of a Job of Kubernetes, for the transport ``kubernetes``.
    via: str = ""  #: Command line of a launcher with ``{node}``, for the transport ``via``.
    wrap: str = ""  #: Command line on each node in front of the node side, or "".
    ssh_config: Path | None = None  #: An ssh_config file instead of the user's, or None.
    remote_python: str | None = None  #: The interpreter on the nodes, or None to look for one.
    host_key_policy: Literal["config", "strict", "accept-new", "off"] = "config"
    env: dict[str, str] = field(default_factory=dict)  #: Variables for the ranks (``NCCL_*``).
    ranks_per_node: int | None = None  #: CPU ranks per node without GPUs; None: 1, or the endpoints of the lab.
    record: Path | None = None  #: File of the recording, or None.
    history: Path | None = None  #: File of the site's history that it reads and is added to, or None.
    resumed: Path | None = None  #: Recording of the earlier part of the session, or None.
    lab: str | None = None  #: ``2x4`` for a lab of that shape, or None.
    lab_faults: tuple[str, ...] = ()  #: Faults of the lab, as text.
    lease: float = 10.0  #: Time (s) without a heartbeat after which a node ends its processes.
    connect_timeout: float = 10.0  #: Deadline in seconds of connecting to a node, name lookup to login.
    all_gpus: bool = False  #: Whether GPUs that jobs of other users hold are tested.
    force: bool = False  #: Whether GPUs in use by other processes are tested.
    layers: tuple[str, ...] = ALL_LAYERS  #: Which layers of pairs are tested: ``world``, ``p2p``.
    #: Which pairs are tested: ``auto``, ``quick``, ``adaptive``, ``sampled`` or ``full`` (`fabtui.model.schedule`).
    mode: Literal["auto", "quick", "adaptive", "sampled", "full"] = "auto"
    isolated: bool = False  #: Whether one pair is tested at a time, with no other traffic.
    both: bool = False  #: Whether pairs are also tested both ways at once.
    sizes: tuple[int, ...] = ()  #: Message sizes of p2p, ascending; empty: ``bytes`` alone.
    collectives: tuple[str, ...] = ("all_reduce",)  #: Which collectives the ``all_reduce`` probe runs.
    #: Numbers of ranks, ascending: collectives run over that number of first ranks, not over nodes, rails and pairs.
    group_sizes: tuple[int, ...] = ()
    collective_sizes: tuple[int, ...] = ()  #: Their message sizes, ascending; empty: three up to ``bytes``.
    #: A variable and the values under which everything is tested, ``("NCCL_P2P_DISABLE", ("0", "1"))``.
    compare: tuple[str, tuple[str, ...]] | None = None
    engine: Literal["auto", "nccl", "gloo"] = "auto"
    #: Share of its link limit below which what is usual in a class is reported; None: by transport.
    limit_share: float | None = None
    bisect: bool = False  #: Whether a search by halves follows the first sweep.
    bisect_below: float | None = None  #: Busbw (GB/s) below which a group is slow in it; None: compared with others.
    confirm: bool = False  #: Whether experiments about the first findings follow the first sweep.
    fail_on_past: bool = False  #: Whether what was bad and no longer is counts for the exit code.
    keep_warm: bool = False  #: Whether the ranks keep their GPUs after a sweep, for quick retests.
    preflight_only: bool = False  #: Whether nodes are only probed, and nothing is tested.
    read_only: bool = False  #: Whether only passive probes run, and no command that may change something.
    probe_folder: Path | None = None  #: Folder of the user's probes, or None to run none.
    master: tuple[str, int] | None = None  #: Host and port that each node tries to connect to in a preflight, or None.
    storage_path: str = ""  #: The file, or folder of small files, on the nodes that the probe ``storage`` reads.
    soak: float = 0.0  #: Time (s) of loading links and GPUs after the sweep; 0: none.
    perftest_options: tuple[str, ...] = ()  #: Further options of the tools of the probe ``perftest``, checked.
    #: Pairs tested per second while the session watches; None: derived from the number of endpoints.
    watch_rate: float | None = None
    #: The only pairs to test, by endpoints (``n060:3``), in both directions; empty: all of the ``mode``.
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def chosen_probes(self) -> tuple[str, ...]:
        if self.probes is not None:
            return self.probes
        return DEFAULT

    def message_size(self, engine: str) -> int:
        return self.bytes or DEFAULT_BYTES.get(engine, USUAL_BYTES)

    def largest_message(self, engine: str) -> int:
        return max((self.message_size(engine), *self.sizes, *self.collective_sizes))

    def recorded(self) -> dict[str, Any]:
        """Return the options for the recording: names of variables without their values, which may be secret."""
        kept = asdict(self)
        kept["probes"] = self.chosen_probes
        kept["env"] = sorted(self.env)
        kept["ssh_config"] = None if self.ssh_config is None else str(self.ssh_config)
        # The name in recordings of format 1.
        kept["looks_only"] = kept.pop("preflight_only")
        kept["hosts"] = list(self.hosts)
        for name in _NOT_RECORDED:
            del kept[name]
        return kept


def connector_options(options: SessionOptions, **more: Any) -> ConnectorOptions:
    """Return the options that reach the nodes of a session; ``more`` adds others or replaces some."""
    # A few hundred heartbeats per second in all, and at least two per lease.
    beat = max(Limits().heartbeat, min(0.4 * options.lease, len(options.hosts) / _BEATS))
    shared = {name: getattr(options, name) for name in _SHARED} | {
        "limits": Limits(heartbeat=beat, frozen=max(Limits().frozen, options.lease))
    }
    return ConnectorOptions(**(shared | more))
