"""Probes ``evidence`` and ``stacks``: what a node shows about ranks that are late, silent or hang.

``evidence`` has reports of the kernel and states of ports; ``stacks`` has all stacks, by py-spy, by pystack, or by what
the kernel shows. Nothing is installed: a node without them runs the py-spy that the controller sends, in memory. No
process is stopped: py-spy runs with ``--nonblocking``. It needs the same user and ``kernel.yama.ptrace_scope`` 0, or
root. The kernel's part needs no rights but the same user. It has the state,
the wait channel and the processor time of the main thread. They distinguish a rank that spins in a collective from one
that waits for a file or a lock.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.parsers.lines import json_value
from fabtui_node.probes import kernel_log
from fabtui_node.probes.judgement import objects
from fabtui_node.probes.network import interfaces
from fabtui_node.probes.nvidia import nvml_inventory
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import job_processes, run_command, sent_program, sysfs

#: Time (s) between two readings of the processor time.
_WINDOW = 1.0
#: Timeout (s) of py-spy or pystack for one process, and maximum number of frames.
_TIMEOUT = 5.0
_FRAMES = 64
#: Words of tools that may not read a process, and bit of the capability that lets them.
_REFUSED, _SYS_PTRACE = ("permission denied", "operation not permitted"), 19
_FRAME = re.compile(r'\(Python\) File "([^"]{1,500})", line (\d{1,9}), in (.{1,300})')

#: Kinds of kernel reports (`dmesg`) that may stop a rank, and codes of theirs that do not.
_KINDS = (
    *("xid", "sxid", "gpu_lost", "gpu_init", "aer", "iommu", "machine_check", "link_down", "module"),
    *("nic_health", "nic_command", "nic_power", "nic_temperature", "oom"),
)
_HARMLESS = ("corrected", "plugged", "unplugged", "unknown")
#: Maximum number of reports.
_EVENTS = 40
_DAY = 86400.0
#: Time (s) before the start of a job whose reports count as well.
_BEFORE = 60.0


def run_stacks(args: Value, emit: Emit, deadline: float, proc: str = "/proc") -> Value:
    """Inspect the processes of jobs.

    Each of ``ranks`` has ``rank``, ``pid``, ``state``, ``wait`` (the wait channel) and ``cpu`` (share of a processor).
    ``files`` is the number of bytes that it read from and wrote to files meanwhile, or None. It has ``frames``
    (``name``, ``site``, from the innermost), ``by``, the tool, and ``sent``, whether it is not the node's; or
    ``problem``, why there are none, with ``allow``, the command that would allow it.

    ``offers`` is the kind of processor of the py-spy that the controller can send; the answer to it is ``wants`` alone
    where it is needed. ``piece`` and ``last`` are of that program; the answer to the last piece has
    the stacks.
    """
    if "piece" in args:
        sent_program.take(args["piece"], args["last"])
        if not args["last"]:
            return {"ranks": []}
    processes, offers = job_processes.find(proc, str(args.get("job") or "")), str(args.get("offers") or "")
    bare = sent_program.path() is None and not any(run_command.find(name, safe=True) for name, _, _ in _TOOLS)
    if bare and offers == os.uname().machine and any(job_processes.is_own(one["pid"], proc) for one in processes):
        return {"ranks": [], "wants": True}
    ranks = inspected(processes, deadline, proc)
    if bare and offers not in ("", os.uname().machine):
        for row in ranks:
            row["problem"] += "; that of fabtui is for %s, this node is %s" % (offers, os.uname().machine)
    return {"ranks": ranks}


def inspected(processes: List[Dict[str, Any]], deadline: float, proc: str = "/proc") -> List[Dict[str, Any]]:
    """Return where processes (`job_processes`) are: the ``ranks`` of `run_stacks`."""
    end = time.monotonic() + deadline * 0.8
    pids = [process["pid"] for process in processes]
    before = {pid: _used(pid, proc) for pid in pids}
    began = time.monotonic()
    time.sleep(min(_WINDOW, deadline / 4) if processes else 0)
    ranks = []
    for process, pid in zip(processes, pids):  # noqa: B905 - Python 3.8 knows no strict=
        (start, already), (after, moved) = before[pid], _used(pid, proc)
        cpu = None if after is None or start is None else round((after - start) / (time.monotonic() - began), 2)
        ranks.append(
            {
                "rank": process["rank"],
                "pid": pid,
                # Read with the wait channel: both change from moment to moment.
                "state": job_processes.state(pid, proc) or process["state"],
                "wait": wait_channel(pid, proc),
                "cpu": cpu,
                "files": None if moved is None or already is None else moved - already,
            }
        )
    for found in ranks:
        found.update(frames_of(found["pid"], proc) if time.monotonic() < end else {"problem": "no time was left"})
    return ranks


def _used(pid: int, proc: str) -> Tuple[Optional[float], Optional[int]]:
    """Return the processor time (s) of a process's main thread, and the bytes that the process has moved."""
    times = job_processes.processor_time(proc, str(pid), "task", str(pid))
    return None if times is None else times[1], job_processes.moved_bytes(pid, proc)[0]


def wait_channel(pid: int, proc: str = "/proc") -> Optional[str]:
    """Return the kernel function in which a process sleeps, None if it does not sleep or that may not be read."""
    text = sysfs.text(proc, str(pid), "wchan")
    return None if text in (None, "", "0") else str(text)[:80]


def frames_of(pid: int, proc: str = "/proc") -> Dict[str, Any]:
    """Return ``frames``, ``by`` and ``sent``, or ``problem`` and maybe ``allow``."""
    problems = []
    ids = job_processes.owner(pid, proc)
    for name, options, parse in _TOOLS:
        path = own = run_command.find(name, safe=True)
        if own is None and name == "py-spy" and ids is not None and ids[0] == os.geteuid():
            path = sent_program.path()
        if path is None:
            continue
        result = _run_as(ids, [path, *options, str(pid)])
        frames = parse(result.stdout, pid) if result.ok else None
        if frames:
            return {"frames": frames, "by": name, "sent": own is None}
        why = (result.stderr.strip().splitlines() or [result.why() or "no frames"])[0][:200]
        if any(words in why.lower() for words in _REFUSED) and (refusal := _refusal(proc)):
            return {"problem": "%s: %s" % (name, refusal[0]), "allow": refusal[1]}
        problems.append("%s: %s" % (name, why))
    return {
        "problem": "; ".join(problems) or "neither py-spy nor pystack is on the PATH, where others cannot change it"
    }


def _refusal(proc: str) -> Optional[Tuple[str, str]]:
    """Return why the kernel lets no tool read a process of this user, and the command that would allow it."""
    scope = sysfs.to_integer(sysfs.text(proc, "sys/kernel/yama/ptrace_scope"))
    if os.geteuid() and scope:
        return "the kernel refuses (kernel.yama.ptrace_scope is %d)" % scope, "sudo sysctl kernel.yama.ptrace_scope=0"
    lines = (sysfs.text(proc, "self", "status") or "").splitlines()
    bound = next((line.split()[-1] for line in lines if line.startswith("CapBnd:")), "")
    if bound and not int(bound, 16) >> _SYS_PTRACE & 1:
        return "the container lacks SYS_PTRACE (docker run --cap-add SYS_PTRACE; Kubernetes: capabilities.add)", ""
    return None


def _run_as(ids: Optional[Tuple[int, int]], argv: List[str]) -> run_command.CommandResult:
    """Run a tool that opens what a process has mapped, with the rights of its user and group, where they are others.

    The tool gets no variable of this process: that user could read them.
    """
    if ids is not None and ids[0] == os.geteuid():
        return run_command.run(argv, _TIMEOUT)
    drop = run_command.find("setpriv", safe=True)
    if ids is None or os.geteuid() != 0 or drop is None:
        return run_command.CommandResult(argv, None, "", "the process belongs to another user")
    words = [drop, "--reuid=%d" % ids[0], "--regid=%d" % ids[1], "--clear-groups", "--no-new-privs", *argv]
    return run_command.run(words, _TIMEOUT, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, cwd="/", alone=True)


def parse_py_spy(text: str, pid: int) -> List[Dict[str, str]]:
    """Return the frames of the main thread in ``py-spy dump --json``, from the innermost."""
    known = objects(json_value(text))
    main = next((one for one in known if one.get("os_thread_id") == pid), known[0] if known else {})
    return [
        {"name": str(one.get("name"))[:100], "site": "%s:%s" % (str(one.get("short_filename"))[:100], one.get("line"))}
        for one in objects(main.get("frames"))[:_FRAMES]
    ]


def parse_pystack(text: str, pid: int) -> List[Dict[str, str]]:
    """Return the frames of the main thread in the output of ``pystack remote``, from the innermost.

    A thread begins with ``Traceback for thread PID (python) ...``. Its frames are lines such as ``(Python) File "a.py",
    line 3, in main``, the outermost first.
    """
    frames: List[Dict[str, str]] = []
    main = False
    for line in text.splitlines():
        if line.startswith("Traceback for thread "):
            main = line.split()[3] == str(pid)
        match = _FRAME.fullmatch(line.strip()) if main else None
        if match:
            site = "%s:%s" % (match[1].rpartition("/")[2][:100], match[2])
            frames.append({"name": match[3].strip()[:100], "site": site})
    return frames[::-1][:_FRAMES]


#: Tools that show stacks: name, options and parser.
_TOOLS = (
    ("py-spy", ["dump", "--json", "--nonblocking", "--pid"], parse_py_spy),
    ("pystack", ["remote", "--no-block"], parse_pystack),
)


def run(
    args: Value, emit: Emit, deadline: float, proc: str = "/proc", sys: str = "/sys", kmsg: str = "/dev/kmsg"
) -> Value:
    """Collect what may have stopped the ranks on this node.

    ``addresses`` of the node; ``log``: whether the kernel's log may be read; ``since`` (s): the age of the job, and
    ``events`` of that time. An event is as in `dmesg`, with ``gpu`` (index), ``age`` (s) and ``at`` (local time).
    ``ports`` (``name``, ``state``, ``physical_state``) of RDMA.
    """
    processes = job_processes.find(proc, str(args.get("job") or ""))
    since = _since(processes, proc)
    log = kernel_log.run({}, emit, deadline * 0.4, kmsg=kmsg, proc=proc)
    recent = [event for event in log["events"] if event["age"] is not None and event["age"] <= since + _BEFORE]
    nics, devices = interfaces.read_all(sys)
    buses = nvml_inventory.on_pci(sys)
    return {
        "addresses": sorted({entry["address"] for nic in nics for entry in nic["addresses"]}),
        "log": log["readable"],
        "since": since,
        "events": [_event(event, buses) for event in recent if may_stop_a_rank(event)][-_EVENTS:],
        "ports": [
            {"name": "%s/%s" % (device["ca"], port["port"]), **{key: port[key] for key in ("state", "physical_state")}}
            for device in devices
            for port in device["ports"]
        ],
    }


def _since(processes: List[Dict[str, Any]], proc: str) -> float:
    """Return the age (s) of the oldest process with a rank, a day without any."""
    ages = [age for one in processes if (age := job_processes.age(one["pid"], proc)) is not None]
    return round(max(ages), 1) if ages else _DAY


def may_stop_a_rank(event: Dict[str, Any]) -> bool:
    """Return True if a kernel report (`dmesg`) is of a kind that may stop a rank."""
    return event["kind"] in _KINDS and event["code"] not in _HARMLESS


def _event(event: Dict[str, Any], buses: List[str]) -> Dict[str, Any]:
    """Return an event with its time and the index of its GPU: the place of its PCI address among all GPUs."""
    when = time.localtime(time.time() - event["age"])
    at = time.strftime("%H:%M" if event["age"] < _DAY / 2 else "%Y-%m-%d %H:%M", when)
    return dict(report_of_gpu(event, buses), age=event["age"], at=at)


def report_of_gpu(event: Dict[str, Any], buses: List[str]) -> Dict[str, Any]:
    """Return a kernel report (`dmesg`) with the index of its GPU: the place of its PCI address among all GPUs.

    Of a process that was killed for memory, it has the number, ``pid``.
    """
    bus = pci_address(event["bus"])
    gpu = next((index for index, name in enumerate(buses) if pci_address(name) == bus), None) if bus else None
    report = dict({key: event.get(key) for key in ("kind", "bus", "code", "interface")}, gpu=gpu)
    if event["kind"] == "oom":
        return dict(report, pid=event["pid"], text="Killed process %d (%s) for memory" % (event["pid"], event["name"]))
    return dict(report, text=str(event.get("text", ""))[:200])


def pci_address(bus: Optional[str]) -> str:
    """Return a PCI address without function, with a domain of four digits: the driver writes it in several ways."""
    domain, _, rest = (bus or "").lower().partition(":")
    return "%s:%s" % (domain[-4:], rest.partition(".")[0]) if rest else ""


PROBE = ProbeSpec(
    name="evidence",
    title="what a node shows about ranks that are late or silent",
    phase="job",
    passive=True,
    needs="nothing; for Xids the right to read the kernel's log",
    gives="kernel reports since the job started, states of RDMA ports, addresses",
    run=run,
)

PROBE_STACKS = ProbeSpec(
    name="stacks",
    title="where the ranks of a running job are",
    phase="job",
    passive=True,
    needs="processes with a rank, the right to inspect them, and for stacks py-spy, which may be sent along",
    gives="stack, state, wait channel and processor time of each rank",
    run=run_stacks,
)
