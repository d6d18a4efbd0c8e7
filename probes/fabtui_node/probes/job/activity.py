"""Probe ``activity``: what the ranks of a running job and the GPUs of the node do now, read each second.

Nothing is started on a GPU, nothing is written. Much is kept between two readings, because a reading must cost a
hundredth of a processor: NVML and its handles, the list of processes, the place in the kernel's log. NVML answers some
questions in milliseconds, so these are asked every few seconds, and all counters of a GPU with one call.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from fabtui_node.parsers import dmesg
from fabtui_node.probes import counters
from fabtui_node.probes.job import evidence
from fabtui_node.probes.nvidia import nvml, nvml_inventory
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import cgroups, job_processes, placement, sock_diag, sysfs

#: Time (s) between two searches for processes, and between two readings of what changes slowly.
SCAN = 5.0
#: Maximum number of helpers of a rank (data loaders) whose processor time and files count as its own.
_HELPERS = 16
#: Variables of a rank that are reported.
_VARIABLES = (
    *("MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "NCCL_INSPECTOR_DUMP_DIR"),
    *("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "PMIX_NAMESPACE"),
)
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
#: Reasons that limit clocks and are a fault, by NVML's bits.
_THROTTLE = ((0x8, "hw_slowdown"), (0x20, "sw_thermal"), (0x40, "hw_thermal"), (0x80, "hw_power_brake"))
_MAX_PIDS = 64
#: Files of RDMA ports and of interfaces: traffic in and out, errors, and repeated packets.
_OF_PORTS = (
    ("counters/port_rcv_data", "counters/port_xmit_data"),
    tuple("counters/" + name for name in ("symbol_error", "port_rcv_errors", "port_xmit_discards", "link_downed")),
    tuple(
        "hw_counters/" + name
        for name in ("packet_seq_err", "local_ack_timeout_err", "out_of_sequence", "roce_adp_retrans")
    ),
)
_OF_INTERFACES = (("rx_bytes", "tx_bytes"), ("rx_errors", "tx_errors", "rx_dropped"), ())
_RECORDS = 500

#: Fields of NVML, all of a GPU in one call: name in the value, field, scope, and what one count stands for.
_FIELDS = (
    ("power", "NVML_FI_DEV_POWER_INSTANT", 0, 0.001),
    ("nvlink_tx", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", 0xFFFFFFFF, 1024),
    ("nvlink_rx", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", 0xFFFFFFFF, 1024),
    ("nvlink_tx", "NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES", 0xFFFFFFFF, 1),
    ("nvlink_rx", "NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES", 0xFFFFFFFF, 1),
)

_KEPT: Dict[Tuple[str, str], Activity] = {}


class _Rank:
    """Process of a rank, with what does not change while it runs."""

    def __init__(self, found: Dict[str, Any], proc: str) -> None:
        self.pid: int = found["pid"]
        self.proc = proc
        self.helpers: List[int] = []
        self.since = time.monotonic() - (job_processes.age(self.pid, proc) or 0.0)
        environ = job_processes.variables(sysfs.text(proc, str(self.pid), "environ", limit=1 << 18))
        self.visible = environ.get("CUDA_VISIBLE_DEVICES")
        self.cgroups = _cgroup_files(self.pid, proc)
        self.hca = environ.get("NCCL_IB_HCA", "")
        self.row: Dict[str, Any] = {
            "rank": found["rank"],
            "local_rank": _first(environ, _LOCAL),
            "world": _first(environ, _WORLD),
            "pid": self.pid,
            "name": found["name"],
            "gpus": [],
            "job": environ.get("SLURM_JOB_ID", ""),
            "connected": None,
            "far": None,
            "env": {name: environ[name][:200] for name in _VARIABLES if name in environ},
        }

    def read(self) -> Optional[Dict[str, Any]]:
        """Return the process now, None if it has ended."""
        stat = job_processes.processor_time(self.proc, str(self.pid))
        if stat is None or stat[0] in "ZX":
            return None
        main = job_processes.processor_time(self.proc, str(self.pid), "task", str(self.pid))
        cpu, files, written = stat[1], *job_processes.moved_bytes(self.pid, self.proc)
        for pid in self.helpers:
            helper = job_processes.processor_time(self.proc, str(pid))
            if helper is not None:
                cpu += helper[1]
                more = job_processes.moved_bytes(pid, self.proc)
                files = more[0] if files is None else files + (more[0] or 0)
                written = more[1] if written is None else written + (more[1] or 0)
        return dict(
            self.row,
            state=stat[0],
            wait=evidence.wait_channel(self.pid, self.proc),
            cpu=None if main is None else main[1],
            cpu_all=round(cpu, 2),
            age=round(time.monotonic() - self.since, 1),
            files=files,
            written=written,
        )


def _first(environ: Dict[str, str], names: Tuple[str, ...]) -> Optional[int]:
    return next((number for name in names if (number := sysfs.to_integer(environ.get(name))) is not None), None)


def _cgroup_files(pid: int, proc: str, root: str = "/sys/fs/cgroup") -> List[str]:
    files = []
    for line in (sysfs.text(proc, str(pid), "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            files.append(os.path.join(root, path.lstrip("/"), "memory.events"))
        elif "memory" in controllers.split(","):
            files.append(os.path.join(root, "memory", path.lstrip("/"), "memory.oom_control"))
    return [path for path in files if os.access(path, os.R_OK)]


class Ranks:
    """Processes with a rank. All processes are searched now and then, and when one of them has ended."""

    def __init__(self, job: str, proc: str = "/proc") -> None:
        self._job, self._proc = job, proc
        self._known: Dict[int, _Rank] = {}
        self._scanned = self._placed = float("-inf")
        self._cgroups: Dict[str, None] = {}

    def read(self, gpus: Dict[int, List[int]]) -> List[Dict[str, Any]]:
        """Return the ranks now; ``gpus`` are the processes on each GPU."""
        if time.monotonic() - self._scanned >= SCAN:
            self._scan(gpus)
        rows = []
        for pid, one in list(self._known.items()):
            row = one.read()
            if row is None:
                del self._known[pid]
                self._scanned = float("-inf")
            else:
                rows.append(row)
        return sorted(rows, key=lambda row: (row["rank"], row["pid"]))

    def _scan(self, gpus: Dict[int, List[int]]) -> None:
        self._scanned = time.monotonic()
        before, self._known = self._known, {}
        for found in job_processes.find(self._proc, self._job):
            known = before.get(found["pid"])
            if known is None or known.row["rank"] != found["rank"]:
                known = _Rank(found, self._proc)
            known.helpers = found["helpers"][:_HELPERS]
            self._known[found["pid"]] = known
            self._cgroups.update(dict.fromkeys(known.cgroups[:1]))
        self._read_connections()
        seen = {pid for pids in gpus.values() for pid in pids}
        matched = bool(seen.intersection(self._known))
        for pid, one in self._known.items():
            mine = [index for index, pids in gpus.items() if pid in pids]
            one.row["gpus"] = mine if matched else _assigned(one, list(gpus))

    def _read_connections(self) -> None:
        """Note of each rank of several whether it holds a TCP connection: one of an earlier job has lost all."""
        here = job_processes.link_of(self._proc, "self/ns/net")
        # The kernel lists those of this network namespace alone.
        ranks = [
            rank
            for rank in self._known.values()
            if (rank.row["world"] or 0) > 1 and job_processes.link_of(self._proc, str(rank.pid), "ns/net") == here
        ]
        held = {rank.pid: job_processes.held_sockets(rank.pid, self._proc) for rank in ranks}
        try:
            there = {row["inode"] for row in sock_diag.sockets(sock_diag.ESTABLISHED)} if any(held.values()) else set()
        except OSError:
            return
        for rank in ranks:
            sockets = held[rank.pid]
            rank.row["connected"] = None if sockets is None else not there.isdisjoint(sockets)

    def place(self, buses: Dict[int, str], root: str) -> None:
        """Note of each rank what is far from its GPU, once after each search."""
        if self._placed == self._scanned:
            return
        self._placed = self._scanned
        for rank in self._known.values():
            placed = placement.of_process(str(rank.pid), rank.hca, self._proc)
            far = [placement.problem(placed, gpu, buses[gpu], root) for gpu in rank.row["gpus"] if gpu in buses]
            rank.row["far"] = next(filter(None, far), None)

    def kills(self) -> Optional[int]:
        """Return the processes of the ranks' cgroups that the kernel has killed for memory so far."""
        if not self._cgroups:
            return None
        return sum(cgroups.parse_numbers(sysfs.text(path)).get("oom_kill", 0) for path in self._cgroups)


def _assigned(rank: _Rank, visible: List[int]) -> List[int]:
    """Return the GPUs of a rank by its variables: in a container, NVML counts processes in another way."""
    named = [word.strip() for word in rank.visible.split(",")] if rank.visible is not None else None
    own = visible if named is None else [int(word) for word in named if word.isdecimal() and int(word) in visible]
    local = rank.row["local_rank"]
    if len(own) == 1:
        return own
    return [own[local]] if local is not None and local < len(own) else []


class _Gpu:
    """A GPU, with what does not change or changes slowly."""

    def __init__(self, library: Any, index: int, handle: Any) -> None:
        self.index, self._library, self._handle = index, library, handle
        self._fields = [one for one in _FIELDS if getattr(library, one[1], None) is not None]
        self._slow: Dict[str, Any] = {"uuid": nvml.words(nvml.ask(library.nvmlDeviceGetUUID, handle))}
        place = nvml.ask(getattr(library, "nvmlDeviceGetPciInfo", None), handle)
        self._slow["bus"] = nvml.bus_id(nvml.words(getattr(place, "busId", None)))
        self._slow["limit"] = nvml.thousandth(
            nvml.ask(getattr(library, "nvmlDeviceGetEnforcedPowerLimit", None), handle)
        )
        self.pids: List[int] = []

    def read(self, slow: bool) -> Dict[str, Any]:
        """Return the GPU now; with ``slow`` also what is read every few seconds."""
        library, handle = self._library, self._handle
        row: Dict[str, Any] = {"index": self.index, "power": None, "nvlink_tx": None, "nvlink_rx": None}
        rates = nvml.ask(library.nvmlDeviceGetUtilizationRates, handle)
        row["util"] = nvml.number(getattr(rates, "gpu", None))
        asked = [(getattr(library, field), scope) for _, field, scope, _ in self._fields]
        answers = nvml.ask(getattr(library, "nvmlDeviceGetFieldValues", None), handle, asked) if asked else None
        kept = []
        for at, (name, field, scope, unit) in enumerate(self._fields):
            count = None if answers is None else nvml.field_count(answers[at])
            if count is not None and row[name] is None:
                row[name] = round(count * unit, 1) if unit < 1 else count * int(unit)
                kept.append((name, field, scope, unit))
        # What this GPU does not answer is not asked again.
        self._fields = kept if answers is not None else self._fields
        if row["power"] is None:
            row["power"] = nvml.thousandth(nvml.ask(library.nvmlDeviceGetPowerUsage, handle))
        if slow:
            self._read_slow()
        return dict(row, pids=self.pids, **self._slow)

    def _read_slow(self) -> None:
        library, handle = self._library, self._handle
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        reasons = next((function for name in names if (function := getattr(library, name, None)) is not None), None)
        bits = nvml.number(nvml.ask(reasons, handle)) or 0
        running = nvml.ask(library.nvmlDeviceGetComputeRunningProcesses, handle) or []
        pids = [nvml.number(getattr(one, "pid", None)) for one in running[:_MAX_PIDS]]
        self.pids = sorted(pid for pid in pids if pid is not None)
        self._slow.update(
            clock=nvml.number(nvml.ask(library.nvmlDeviceGetClockInfo, handle, 1)),
            throttle=[name for bit, name in _THROTTLE if bits & bit],
            used=nvml.number(getattr(nvml.ask(library.nvmlDeviceGetMemoryInfo, handle), "used", None)),
        )


class Gpus:
    """The GPUs that this process sees, over an NVML that stays open."""

    def __init__(self, open_library: Callable[[], Any] = nvml.open_library) -> None:
        self._open_library = open_library
        self._gpus: Optional[List[_Gpu]] = None
        self._slow = float("-inf")
        self.problem = ""

    def read(self) -> List[Dict[str, Any]]:
        """Return the GPUs now. Blocks while the driver does."""
        if self._gpus is None:
            self._gpus = self._open()
        slow = time.monotonic() - self._slow >= SCAN
        if slow:
            self._slow = time.monotonic()
        return [gpu.read(slow) for gpu in self._gpus]

    def _open(self) -> List[_Gpu]:
        try:
            library = self._open_library()
        except nvml.Unavailable as error:
            self.problem = str(error)[:200]
            return []
        visible = nvml.visible_handles(library, os.environ.get("CUDA_VISIBLE_DEVICES"))
        return [_Gpu(library, index, handle) for index, handle in visible]


class Nics:
    """Bytes and errors of RDMA ports and of interfaces that data may use."""

    def __init__(self, root: str = "/sys") -> None:
        self._root = root
        self._names: Optional[List[str]] = None
        self._errors: Dict[str, Dict[str, Any]] = {}
        self._slow = float("-inf")

    def read(self) -> Dict[str, Dict[str, Any]]:
        """Return the counters by port (``mlx5_0/1``) and interface. Blocks while a device does."""
        if self._names is None:
            self._names = counters.data_interfaces(self._root)
        slow = time.monotonic() - self._slow >= SCAN
        if slow:
            self._slow = time.monotonic()
        rows: Dict[str, Dict[str, Any]] = {}
        for name, folder, unit, (traffic, errors, repeats) in self._places(self._names):
            rx, tx = (sysfs.integer(folder, file) for file in traffic)
            if slow:
                self._errors[name] = {"errors": _total(folder, errors), "retransmits": _total(folder, repeats)}
            row = {"rx": None if rx is None else unit * rx, "tx": None if tx is None else unit * tx}
            rows[name] = dict(row, **self._errors.get(name, {}))
        return rows

    def _places(self, names: List[str]) -> Iterator[Tuple[str, str, int, Tuple[Tuple[str, ...], ...]]]:
        """Yield the name of each port and interface, its folder, the bytes of a count of traffic, and its files."""
        folder = os.path.join(self._root, "class/infiniband")
        for device in sysfs.names(folder)[:64]:
            for port in sysfs.names(folder, device, "ports")[:4]:
                yield "%s/%s" % (device, port), os.path.join(folder, device, "ports", port), 4, _OF_PORTS
        for name in names:
            yield name, os.path.join(self._root, "class/net", name, "statistics"), 1, _OF_INTERFACES


def _total(folder: str, files: Tuple[str, ...]) -> Optional[int]:
    known = [count for file in files if (count := sysfs.integer(folder, file)) is not None]
    return sum(known) if known else None


class KernelTail:
    """Reports in the kernel's log since the first reading."""

    def __init__(self, kmsg: str = "/dev/kmsg", root: str = "/sys") -> None:
        self._root = root
        self._device: Optional[int] = None
        self.problem = ""
        try:
            self._device = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._device, 0, os.SEEK_END)
        except OSError as error:
            self.problem = "the kernel's log: %s" % error.strerror

    def read(self) -> List[Dict[str, Any]]:
        lines: List[str] = []
        while self._device is not None and len(lines) < _RECORDS:
            try:
                record = os.read(self._device, 8192)
            except OSError:
                # Nothing new, or records were overwritten meanwhile.
                break
            if not record:
                break
            lines += record.decode("utf-8", "replace").splitlines()
        if not lines:
            return []
        buses = nvml_inventory.on_pci(self._root)
        at = time.strftime("%H:%M:%S")
        events = dmesg.parse_kernel("\n".join(lines)).values["events"]
        reports = [dict(evidence.report_of_gpu(one, buses), at=at) for one in events if evidence.may_stop_a_rank(one)]
        return reports[-_MAX_PIDS:]


class Activity:
    """Reader of one node, for one Slurm job or for all."""

    def __init__(
        self,
        job: str = "",
        proc: str = "/proc",
        root: str = "/sys",
        kmsg: str = "/dev/kmsg",
        open_library: Callable[[], Any] = nvml.open_library,
    ) -> None:
        self._ranks, self._root = Ranks(job, proc), root
        self._gpus = Gpus(open_library)
        self._gpu_source = counters.CounterSource(self._gpus.read)
        self._nic_source = counters.CounterSource(Nics(root).read)
        self._kernel = KernelTail(kmsg, root)
        self._pids: Dict[int, List[int]] = {}
        self._lock = threading.Lock()

    def read(self, until: float) -> Value:
        """Return the node now; what is not there by ``until`` (monotonic seconds) is left out."""
        with self._lock:
            now, began, used = time.time(), time.monotonic(), time.process_time()
            readings = [source.begin() for source in (self._gpu_source, self._nic_source)]
            gpus, nics = (None if one is None else one.value(until) for one in readings)
            if gpus is not None:
                # A driver that does not answer in time has not changed which rank has which GPU.
                self._pids = {gpu["index"]: gpu["pids"] for gpu in gpus}
                self._ranks.place({gpu["index"]: gpu["bus"] for gpu in gpus if gpu.get("bus")}, self._root)
            rows = self._ranks.read(self._pids)
            problems = [text for text in (self._gpus.problem, self._kernel.problem) if text]
            problems += [] if gpus is not None else ["NVML did not answer in time"]
            kernel, kills = self._kernel.read(), self._ranks.kills()
            return {
                "time": round(now, 3),
                "clock": round(began, 3),
                "ranks": rows,
                "gpus": gpus or [],
                "nics": nics or {},
                "kernel": kernel,
                "oom": kills,
                "problems": problems,
                "cost": round(time.process_time() - used, 4),
            }


def run(args: Value, emit: Emit, deadline: float, proc: str = "/proc", root: str = "/sys") -> Value:
    """Read what the ranks and the GPUs of the node do, with ``job`` those of one Slurm job.

    ``time``, ``clock`` (monotonic). ``ranks``: ``rank``, ``local_rank``, ``world``, ``pid``, ``name``, ``gpus``,
    ``job``, ``env``, ``connected`` (by TCP; None if unknown), ``far`` (what is far from its GPU), ``age`` (s),
    ``state``, ``wait`` (wait channel). ``cpu`` and ``cpu_all`` are seconds of its main thread, and of all threads and
    helpers. ``files`` are bytes read and written, ``written`` bytes to storage.
    ``gpus``: ``index``, ``uuid``, ``util`` (%), ``power`` and ``limit`` (W), ``clock`` (MHz), ``throttle``, ``used``
    (bytes), ``nvlink_tx``, ``nvlink_rx`` (bytes), ``pids``. ``nics``: ``rx``, ``tx`` (bytes), ``errors``,
    ``retransmits`` by port and interface. ``kernel``: reports since the last reading; ``oom``: kills for memory so far;
    ``problems``: what cannot be read; ``cost``: processor time (s) of this reading.
    """
    job = str(args.get("job") or "")
    key = (job, proc)
    if key not in _KEPT:
        _KEPT[key] = Activity(job, proc, root)
    return _KEPT[key].read(time.monotonic() + deadline * 0.8)


PROBE = ProbeSpec(
    name="activity",
    title="what the ranks of a running job and the GPUs do now",
    phase="job",
    passive=True,
    needs="nothing; for files the same user as the ranks, for GPUs the driver's NVML",
    gives="states and processor time of the ranks; utilization, power and traffic of GPUs and NICs; kernel reports",
    run=run,
)
