"""User probes, from the payload: each runs in a separate process, with limits on time and size.

Its failures do not disturb other probes; one line reports the problem.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import resource
import select
import signal
import sys
import time
import types
from typing import Any, Dict, List, Optional

from fabtui_node.registry import ProbeSpec
from fabtui_node.runtime import processes

PACKAGE = "fabtui_own"
#: How the package was called before; probes of users may still import it.
OLD_PACKAGE = "fabtui" + "_probes"
#: Modules that it had, and where they are now.
OLD_MODULES = {
    "acs": "fabtui_node.system.pci",
    "commands": "fabtui_node.system.run_command",
    "drivers": "fabtui_node.system.drivers",
    "libraries": "fabtui_node.system.drivers",
    "machine": "fabtui_node.system.machine",
    "nics": "fabtui_node.probes.network.interfaces",
    "nvml": "fabtui_node.probes.nvidia.nvml",
    "pci": "fabtui_node.system.pci",
    "rdma": "fabtui_node.system.rdma_devices",
    "sysfs": "fabtui_node.system.sysfs",
}
#: The most characters and numbers that a probe may give.
MOST = 200000
_DEEPEST = 12
_JUDGEMENTS = 50
_TEXT = 300
_MOST_MEMORY = 4 << 30

Judgement = Dict[str, str]


class BadValueError(Exception):
    """The result of the probe is not a value: the message is one line."""


def check(value: Any, left: int = MOST, depth: int = 0) -> int:
    """Return what is left of a size after a value; BadValueError if it is too large or deep, or fits no message."""
    if depth > _DEEPEST:
        raise BadValueError("values within values, more than %d deep" % _DEEPEST)
    if isinstance(value, str):
        left -= len(value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise BadValueError("a %s as a name; names are texts" % type(name).__name__)
            left = check(inner, left - len(name), depth + 1)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            left = check(inner, left, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadValueError("%r, which is not a number" % value)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise BadValueError("a %s, which is not a value" % type(value).__name__)
    elif isinstance(value, int) and abs(value) >= 1 << 63:
        raise BadValueError("a number of more than 63 bits")
    if left <= 0:
        raise BadValueError("more than %d characters" % MOST)
    return left - 1


def _judged(module: Any, value: Dict[str, Any]) -> List[Judgement]:
    judge = getattr(module, "judge", None)
    if judge is None:
        return []
    listed = judge(dict(value))
    if not isinstance(listed, (list, tuple)):
        raise BadValueError("judge gives a %s, not a list" % type(listed).__name__)
    judgements = []
    for one in list(listed)[:_JUDGEMENTS]:
        if not isinstance(one, dict):
            raise BadValueError("judge gives a list with a %s in it" % type(one).__name__)
        judgements.append({name: str(one.get(name, ""))[:_TEXT] for name in ("subject", "verdict", "text")})
    return judgements


def _words(module: Any, constant: str) -> Dict[str, str]:
    words = getattr(module, constant, None)
    if not isinstance(words, dict):
        return {}
    return {str(name)[:60]: str(word)[:20] for name, word in list(words.items())[:200]}


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(PACKAGE + "." + name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != OLD_PACKAGE or OLD_PACKAGE in sys.modules:
            raise
        old: Any = types.ModuleType(OLD_PACKAGE)
        old.__path__ = []
        sys.modules[OLD_PACKAGE] = old
        for short, new in OLD_MODULES.items():
            module = importlib.import_module(new)
            sys.modules[OLD_PACKAGE + "." + short] = module
            setattr(old, short, module)
        return importlib.import_module(PACKAGE + "." + name)


def _found(name: str, args: Dict[str, Any], deadline: float) -> Dict[str, Any]:
    answer: Dict[str, Any] = {"own": True, "value": {}, "units": {}, "compare": {}, "judged": [], "problem": None}
    try:
        module = _imported(name)
        value = module.run(args, lambda partial: None, deadline)
        if isinstance(value, str):
            if len(value) > 50 * MOST:
                raise BadValueError("run gives a text of %d characters" % len(value))
            value = module.parse(value)
        if not isinstance(value, dict):
            raise BadValueError("run gives a %s; expected a text for parse, or a dict" % type(value).__name__)
        check(value)
        answer["value"] = value
        answer["units"], answer["compare"] = _words(module, "UNITS"), _words(module, "COMPARE")
        answer["judged"] = _judged(module, value)
    except BadValueError as error:
        answer["problem"] = str(error)[:_TEXT]
    except BaseException as error:
        answer["problem"] = ("%s: %s" % (type(error).__name__, error))[:_TEXT]
    return answer


def _child(end: int, parent: int, name: str, args: Dict[str, Any], deadline: float) -> None:
    """Run the probe in this process, a fork, send its result, and exit."""
    try:
        os.setsid()
        processes.die_with_parent(parent)
        processes.close_others([end])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = _MOST_MEMORY if hard == resource.RLIM_INFINITY else min(_MOST_MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        answer = _found(name, args, deadline)
        left = memoryview(json.dumps(answer).encode("utf-8", "surrogatepass"))
        while left:
            left = left[os.write(end, left) :]
    finally:
        os._exit(0)


def _take(end: int, until: float) -> Optional[bytes]:
    """Return all that comes until the end is closed, None where it is not by then, or there is too much of it."""
    data = bytearray()
    while len(data) <= 8 * MOST:
        left = until - time.monotonic()
        if left <= 0 or not select.select([end], [], [], left)[0]:
            return None
        more = os.read(end, 65536)
        if not more:
            return bytes(data)
        data += more
    return None


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Run the module ``fabtui_own.NAME``, with ``NAME`` the argument ``name``, in a separate process.

    ``{"own": True, "value": {...}, "units": {...}, "compare": {...}, "judged": [...], "problem": text or None}``.
    """
    most = max(deadline - 0.5, deadline * 0.5)
    until = time.monotonic() + most
    parent = os.getpid()
    end, far = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(far, parent, str(args["name"]), dict(args), most * 0.9)
    os.close(far)
    try:
        data = _take(end, until)
    finally:
        os.close(end)
        with contextlib.suppress(OSError):
            # What it started goes with it.
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    if data is None:
        return {"own": True, "value": {}, "problem": "it did not end within %g s" % round(most, 1)}
    try:
        answer: Dict[str, Any] = json.loads(data.decode("utf-8", "surrogatepass"))
        return answer
    except ValueError:
        how = "by signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "with status %d" % (status >> 8)
        return {"own": True, "value": {}, "problem": "it ended its own process, %s" % how}


PROBE = ProbeSpec(
    name="own",
    title="your own probes, see docs/user-probes.md",
    phase="user",
    needs="a file in your probe folder, or a package with an entry point",
    gives="the values of your probe",
    run=run,
)
