"""The gate of a node: may a job start here? Checks without a peer, a hard end, one reason.

Each check is a probe that runs in a process of its own, starts no program and is judged by its own ``judge``. What
hangs is left behind: a dead file system or driver holds its process in the kernel, where nothing can end it. What is
bad is looked at once more, so that a moment drains no node.

It runs inside ``fabtui gate``, and alone as a single file of the standard library (``fabtui gate --build``).
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import selectors
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple

from fabtui_node.probes import kernel_log
from fabtui_node.probes.judgement import count, judgement, objects, part, some, texts
from fabtui_node.probes.nvidia import nvml_inventory
from fabtui_node.registry import Judgement
from fabtui_node.system import job_processes, placement, run_command, sysfs

#: Exit codes, those of fabtui: a node may have jobs, it may not, bad usage, and too little could be examined.
FREE, DRAIN, USAGE, UNKNOWN = 0, 1, 2, 3
KIND = "fabtui gate"
#: Time (s) for a check, for a second look at what is bad, and for everything.
SECONDS, AGAIN, HARD = 5.5, 2.5, 10.0
#: Time (s) before the second one.
PAUSE = 0.2
#: Length of the reason: Slurm keeps more, but its tools show one line.
LONGEST = 200
#: A check that waited for a processor for this share of its time had no chance.
_STARVED = 0.5
#: Verdicts of probes that drain a node.
_BAD = ("bad", "failed", "error", "timeout", "fatal")
#: Verdicts that are worth a line.
_ODD = (*_BAD, "warn", "warning", "slow")
#: Largest file of a baseline (bytes).
_LARGEST = 1 << 20


class Check(NamedTuple):
    """A probe of the gate: its module and arguments, and what the node must have for it (``ProbeSpec.requires``)."""

    name: str
    module: str
    args: Mapping[str, Any] = {}
    requires: str = ""


#: What is checked. None sends anything, allocates memory of a GPU, or starts a program.
CHECKS = (
    Check("mounts", "mounts", {"seconds": 3.0}),
    Check("host", "host"),
    Check("clock", "clock"),
    Check("kernel", "kernel_log"),
    Check("gpus", "nvidia.gpu_health", {"check": False}, "gpus"),
    Check("nvlink", "nvidia.nvlink", {"check": False}, "gpus"),
    Check("ibstat", "rdma.ibstat", {}, "ib"),
)


class CheckAnswer(NamedTuple):
    """Result of a check; ``problem``: why it has none, ``hangs``: that is the fault of the node."""

    judged: List[Judgement]
    facts: Dict[str, Any]
    problem: str = ""
    hangs: bool = False


class Opinion(NamedTuple):
    """Reasons to drain a node, what is odd, and what could not be examined."""

    bad: List[str]
    odd: List[str]
    missing: List[str]
    facts: Dict[str, Any]

    @property
    def code(self) -> int:
        return DRAIN if self.bad else UNKNOWN if self.missing else FREE

    @property
    def line(self) -> str:
        """The reason in one line; of a node that may have jobs, a word."""
        head = self.bad or self.missing
        text = "; ".join(head) if head else "ok" + ("; " + "; ".join(self.odd) if self.odd else "")
        text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
        return "fabtui: " + (text if len(text) <= LONGEST else text[: LONGEST - 3] + "...")


def facts_of(name: str, value: Dict[str, Any]) -> Dict[str, Any]:
    """Return the facts of a check that a baseline has; None where unknown."""
    gpus = objects(value.get("gpus"))
    if name == "gpus":
        names = sorted(str(gpu.get("name")) for gpu in gpus)
        widths = [width for gpu in gpus if (width := count(part(gpu, "pcie"), "width"))]
        return {
            "gpus": ", ".join("%d x %s" % (names.count(name), name) for name in dict.fromkeys(names)) or "none",
            "gpu_memory": min([size for gpu in gpus if (size := count(gpu, "memory"))], default=None),
            "gpu_pcie_width": min(widths, default=None),
            "driver": value.get("driver"),
            # The driver knows whether a GPU still needs what an earlier Xid asked for.
            "recovered": bool(gpus) and all(gpu.get("recovery") == "none" for gpu in gpus),
        }
    if name == "nvlink":
        links = [[link for link in objects(gpu.get("links")) if link.get("state") == "active"] for gpu in gpus]
        return {"nvlinks": min(map(len, links), default=None)}
    if name == "ibstat":
        ports = [(ca.get("ca"), port) for ca in objects(value.get("cas")) for port in objects(ca.get("ports"))]
        up = [(ca, port) for ca, port in ports if port.get("state") == "Active"]
        return {"ports": ["%s/%s %g Gb/s" % (ca, port.get("port"), count(port, "rate") or 0) for ca, port in up]}
    if name == "mounts":
        return {"mounts": [mount["path"] for mount in objects(value.get("mounts")) if mount["remote"]]}
    return _host_facts(value) if name == "host" else {}


def _host_facts(value: Dict[str, Any]) -> Dict[str, Any]:
    soft = count(part(part(value, "limits"), "memlock"), "soft")
    net = "/sys/class/net"
    interfaces = [name for name in sysfs.names(net) if sysfs.text(net, name, "operstate") == "up"]
    return {
        "cpus": len(part(value, "processors").get("cpus_online") or ()) or None,
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "memlock": 1e18 if soft == -1 else soft,
        # Interfaces of containers come and go.
        "interfaces": [name for name in interfaces if name.startswith(("en", "eth", "ib", "bond"))],
        "kernel": os.uname().release,
    }


#: How a fact is compared with the baseline: ``least`` (a number that may not fall by more than this share), ``all``
#: (nothing of a list may be missing), ``same``; and its title. Changes of those with ``odd`` drain nothing.
_COMPARED = {
    "gpus": ("same", "GPUs"),
    "gpu_memory": ("least 0.02", "memory of a GPU"),
    "gpu_pcie_width": ("least 0", "PCIe lanes of a GPU"),
    "nvlinks": ("least 0", "active NVLinks of a GPU"),
    "ports": ("all", "active RDMA ports"),
    "interfaces": ("all", "interfaces that are up"),
    "mounts": ("all", "mounted file systems"),
    "cpus": ("least 0", "CPUs"),
    "memory": ("least 0.02", "memory"),
    "memlock": ("least 0", "memlock"),
    "driver": ("odd", "driver"),
    "kernel": ("odd", "kernel"),
}


def changes(facts: Mapping[str, Any], before: Mapping[str, Any]) -> Tuple[List[str], List[str]]:
    """Return what is worse than in a baseline, and what is merely different; facts that one of them lacks are left."""
    bad: List[str] = []
    odd: List[str] = []
    for name, (how, title) in _COMPARED.items():
        now, then = facts.get(name), before.get(name)
        if now is None or then is None or now == then:
            continue
        if how == "all" and isinstance(now, list):
            missing = [text for text in texts(then) if text not in now]
            if missing:
                bad.append("%s of the baseline missing: %s" % (title, some(missing, 4)))
        elif how.startswith("least") and isinstance(now, (int, float)) and isinstance(then, (int, float)):
            if now < then * (1 - float(how.split()[1])):
                bad.append("%s: %g, %g in the baseline" % (title, now, then))
        elif how in ("same", "odd"):
            (bad if how == "same" else odd).append("%s: %s, %s in the baseline" % (title, now, then))
    return bad, odd


def xids(value: Mapping[str, Any], grave: Mapping[str, str]) -> List[Judgement]:
    """Return judgements of the Xids that ask for a reset: ``grave`` has name and action by the number."""
    judged = []
    for entry in objects(value.get("counts")):
        code = str(entry.get("code"))
        fatal = "nonfatal" not in str(entry.get("text")).lower().replace("-", "")
        if entry.get("kind") == "xid" and code in grave and fatal:
            name = "Xid %s: %s" % (code, grave[code])
            judged.append(kernel_log.report(entry, kernel_log.aged(entry, "bad"), "xid", name))
    return judged


def inspect(check: Check, grave: Mapping[str, str], seconds: float) -> CheckAnswer:
    """Run a check in this process."""
    module = importlib.import_module("fabtui_node.probes." + check.module)
    value = module.run(dict(check.args), None, seconds)
    judged = module.judge(value) + (xids(value, grave) if check.name == "kernel" else [])
    if check.name == "gpus" and "CUDA_VISIBLE_DEVICES" in os.environ:
        # A task has its GPUs; a Prolog has all.
        placed = placement.of_process("self", os.environ.get("NCCL_IB_HCA", ""))
        gpus = [gpu for gpu in objects(value.get("gpus")) if gpu.get("bus")]
        far = [placement.problem(placed, gpu["index"], gpu["bus"]) for gpu in gpus]
        judged += [judgement("placement", "warn", text) for text in far if text][:1]
    return CheckAnswer(judged, facts_of(check.name, value))


class _Child:
    """A check in a process of its own, which has none of our files: a reader of them waits for nobody left behind."""

    def __init__(self, name: str, work: Callable[[], CheckAnswer]) -> None:
        self.name = name
        self.began = time.monotonic()
        self._data = b""
        self.output, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._become(writing, work)
        os.close(writing)
        os.set_blocking(self.output, False)

    def _become(self, writing: int, work: Callable[[], CheckAnswer]) -> NoReturn:
        try:
            signal.alarm(0)
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            os.dup2(writing, 3)
            os.closerange(4, 4096)
            os.chdir("/")
            run_command.refuse()
            try:
                answer = work()
            except Exception as error:  # one check that fails costs no other
                answer = CheckAnswer([], {}, "%s: %s: %s" % (self.name, type(error).__name__, error))
            data = json.dumps(answer).encode()
            while data:
                data = data[os.write(3, data) :]
        finally:
            # Threads that hang in the kernel are waited for by nobody.
            os._exit(0)

    def read(self) -> bool:
        """Take what the process wrote; return True at the end."""
        try:
            data = os.read(self.output, 1 << 16)
        except BlockingIOError:
            return False
        self._data += data
        return not data

    def answer(self) -> CheckAnswer:
        """Return the result, and end the process; of one without a result, what it was doing."""
        try:
            found = CheckAnswer(*json.loads(self._data))
        except (ValueError, TypeError):
            found = self._hanging()
        # It is not reaped yet, so that its number is its own.
        os.kill(self.pid, signal.SIGKILL)
        return found

    def _hanging(self) -> CheckAnswer:
        took, name, pid = time.monotonic() - self.began, self.name, str(self.pid)
        used = job_processes.processor_time("/proc", pid)
        if used is None or used[0] in "ZX":
            return CheckAnswer([], {}, "%s ended without an answer" % name)
        tasks = sysfs.names("/proc", pid, "task")
        states = [thread[0] for at in tasks if (thread := job_processes.processor_time("/proc", pid, "task", at))]
        # Time on a processor, and time (ns) that it was ready and had none.
        waited = [(sysfs.text("/proc", pid, "task", at, "schedstat") or "").split() for at in tasks]
        longest = max([int(words[1]) / 1e9 for words in waited if len(words) > 1 and words[1].isdecimal()], default=0.0)
        if "D" not in states and longest > _STARVED * took:
            text = "%s waited %.0f of %.0f s for a processor: the node is too busy"
            return CheckAnswer([], {}, text % (name, longest, took))
        where = sysfs.text("/proc", pid, "wchan") if "D" in states else None
        what = "hangs in the kernel (%s)" % where if where else "does not answer"
        return CheckAnswer([], {}, "%s %s for %.0f s" % (name, what, took), hangs=True)

    def left(self, until: float) -> bool:
        """Reap the process; return True if it is still there (in the kernel) at ``until``."""
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() >= until:
                return True
            time.sleep(0.002)
        return False


def ask(work: Mapping[str, Callable[[], CheckAnswer]], seconds: float) -> Tuple[Dict[str, CheckAnswer], List[_Child]]:
    """Run functions side by side, each in a process, for at most ``seconds``; return answers and processes to reap."""
    children = [_Child(name, function) for name, function in work.items()]
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.output, selectors.EVENT_READ, child)
        while selector.get_map() and (rest := until - time.monotonic()) > 0:
            for key, _ in selector.select(rest):
                if key.data.read():
                    selector.unregister(key.fileobj)
    answers = {child.name: child.answer() for child in children}
    for child in children:
        os.close(child.output)
    return answers, children


def opinion(answers: Mapping[str, CheckAnswer], before: Optional[Mapping[str, Any]] = None) -> Opinion:
    """Judge what the checks came to, against a baseline if there is one. Pure."""
    facts: Dict[str, Any] = {}
    for answer in answers.values():
        facts.update(answer.facts)
    recovered = facts.pop("recovered", False)
    bad, odd = changes(facts, before or {})
    for name, answer in answers.items():
        for one in answer.judged:
            mild = recovered and one["subject"] == "xid"
            if name == "ibstat" and (before or {}).get("ports"):
                # A port without a cable on a good node needs none.
                mild = not any(text.startswith(one["subject"] + " ") for text in texts((before or {})["ports"]))
            port = one["subject"] + ": " if "/" in one["subject"] and name == "ibstat" else ""
            if one["verdict"] in _ODD:
                # A preflight compares nodes; here a GPU that is missing has only its PCI device as a witness.
                grave = one["verdict"] in _BAD or one.get("check") == "gpu-count"
                (bad if grave and not mild else odd).append(port + one["text"])
        if answer.hangs:
            bad.append(answer.problem)
    missing = [answer.problem for answer in answers.values() if answer.problem and not answer.hangs]
    return Opinion(list(dict.fromkeys(bad)), list(dict.fromkeys(odd)), missing, facts)


def agreed(first: CheckAnswer, second: CheckAnswer) -> CheckAnswer:
    """Return an answer with what was bad twice; what was bad once is odd."""
    if first.hangs or second.problem:
        return first
    seen = [(one["subject"], one["verdict"]) for one in second.judged]
    for one in first.judged:
        if (one["subject"], one["verdict"]) not in seen:
            one["verdict"], one["text"] = "warn", one["text"] + " (seen once)"
    return CheckAnswer(first.judged, second.facts)


def examine(
    grave: Mapping[str, str], before: Optional[Mapping[str, Any]] = None, checks: Sequence[Check] = CHECKS
) -> Tuple[Opinion, List[int]]:
    """Return the opinion about this node, and the processes that could not be ended."""
    began = time.monotonic()
    there = {
        "": True,
        "gpus": bool(nvml_inventory.on_pci()) or "gpus" in (before or {}),
        "ib": bool(sysfs.names("/sys/class/infiniband")) or bool((before or {}).get("ports")),
    }
    checks = [check for check in checks if there[check.requires]]

    def work(chosen: Sequence[Check], seconds: float) -> Tuple[Dict[str, CheckAnswer], List[_Child]]:
        return ask({one.name: functools.partial(inspect, one, grave, seconds * 0.8) for one in chosen}, seconds)

    answers, children = work(checks, SECONDS)
    doubted = [check for check in checks if _is_bad(answers[check.name], before)]
    if doubted and time.monotonic() - began < HARD - AGAIN - 1:
        time.sleep(PAUSE)
        again, more = work(doubted, AGAIN)
        children += more
        answers.update({name: agreed(answers[name], answer) for name, answer in again.items()})
    until = min(began + HARD - 0.5, time.monotonic() + 0.3)
    return opinion(answers, before), [child.pid for child in children if child.left(until)]


def _is_bad(answer: CheckAnswer, before: Optional[Mapping[str, Any]]) -> bool:
    return not answer.hangs and bool(opinion({"": answer}, before).bad)


def read_baseline(path: str) -> CheckAnswer:
    """Return the facts in the JSON of an earlier gate, or why there are none."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.loads(file.read(_LARGEST))
        if value["kind"] == KIND:
            return CheckAnswer([], dict(value["facts"]))
    except OSError as error:
        return CheckAnswer([], {}, "cannot read the baseline %s: %s" % (path, error.strerror))
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return CheckAnswer([], {}, "%s is not the JSON of fabtui gate; make one with --json" % path)


def _ended(number: int, frame: Any) -> NoReturn:
    os.write(1, b"fabtui: the gate itself did not end within %d s\n" % HARD)
    os._exit(UNKNOWN)


def gate(grave: Mapping[str, str], baseline: Optional[str], as_json: bool) -> int:
    """Examine this node and print one line, or JSON; return the exit code. It ends within `HARD` seconds."""
    signal.signal(signal.SIGALRM, _ended)
    signal.setitimer(signal.ITIMER_REAL, HARD - 0.2)
    began = time.monotonic()
    before = None
    if baseline is not None:
        # Its file system may hang.
        read, _ = ask({"the baseline": functools.partial(read_baseline, os.path.abspath(baseline))}, 1.0)
        before = read["the baseline"].facts
        if problem := read["the baseline"].problem:
            sys.stderr.write("fabtui: error: %s\n" % problem)
            return USAGE
    found, left = examine(grave, before)
    value = {
        "kind": KIND,
        "node": os.uname().nodename,
        "exit": found.code,
        "reason": found.line,
        **{name: getattr(found, name) for name in ("bad", "odd", "missing", "facts")},
        "left_behind": left,
        "seconds": round(time.monotonic() - began, 3),
        "cpu": round(sum(os.times()[:4]), 3),
    }
    sys.stdout.write((json.dumps(value) if as_json else found.line) + "\n")
    sys.stdout.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return found.code


def main(words: Sequence[str], grave: Mapping[str, str]) -> NoReturn:
    """Run the gate as a program: ``--baseline FILE`` and ``--json``."""
    rest = [word for word in words if word != "--json"]
    if not rest or (len(rest) == 2 and rest[0] == "--baseline"):
        code = gate(grave, rest[1] if rest else None, "--json" in words)
    else:
        sys.stderr.write("usage: fabtui-gate [--baseline FILE] [--json]\n")
        code = USAGE
    # An interpreter that ends as usual waits for its threads.
    os._exit(code)
