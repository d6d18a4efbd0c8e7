"""Rules for the GPUs of one node, on the values of the probes ``gpus`` and ``gpuload``."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Tuple

from fabtui_node.probes.judgement import count, judgement, objects, part, some, texts
from fabtui_node.registry import Judgement

#: Throttle reasons that are faults, and their meanings.
_SLOW = {
    "hw_slowdown": "the hardware halves its clocks",
    "hw_thermal_slowdown": "it is too hot and the hardware slows it down",
    "hw_power_brake_slowdown": "the machine's power supply slows it down",
    "sw_thermal_slowdown": "it is too hot and the driver slows it down",
}
#: Lowest performance state of a GPU at work; graphics clocks are full in P0, and CUDA may hold P2.
_LOWEST_STATE = 2
#: Utilization (%) from which a GPU counts as at work: a display or a monitor takes some percent in a low state.
_AT_WORK = 50
_MOST = 200
#: GPUs that are built for NVLink between nodes.
_BETWEEN_NODES = re.compile(r"\bGB[0-9]00\b")


def which(indexes: Iterable[Any]) -> str:
    """Return GPUs by their numbers: ``GPU 3``, ``GPUs 0-2,7``."""
    numbers = sorted({index for index in indexes if isinstance(index, int)})
    runs: List[List[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in runs)
    return "GPU%s %s" % ("s" if len(numbers) > 1 else "", words) if numbers else "a GPU"


def _named(gpus: List[Dict[str, Any]]) -> str:
    labels = [str(gpu["label"]) for gpu in gpus if gpu.get("label")]
    return some(labels) if labels else which(gpu.get("index") for gpu in gpus)


class Judgements:
    """Collects judgements of GPUs; equal judgements of several GPUs become one."""

    def __init__(self) -> None:
        self._found: Dict[Tuple[str, str, str, str], List[Dict[str, Any]]] = {}

    def add(self, gpu: Dict[str, Any], subject: str, verdict: str, text: str, check: str = "") -> None:
        """Add a judgement of a GPU, see `judgement`; a GPU of which the number is not known has a ``label``."""
        if len(self._found) < _MOST:
            self._found.setdefault((subject, verdict, text, check), []).append(gpu)

    def all(self) -> List[Judgement]:
        return [
            judgement(
                subject,
                verdict,
                "%s: %s" % (_named(gpus), text),
                ["gpu:%s" % gpu["index"] for gpu in gpus if gpu.get("index") is not None],
                check,
            )
            for (subject, verdict, text, check), gpus in self._found.items()
        ]


def judge_load(gpus: List[Dict[str, Any]]) -> List[Judgement]:
    judged = Judgements()
    for gpu in gpus:
        _pcie(gpu, judged)
        _clocks(gpu, judged)
    return judged.all()


def _pcie(gpu: Dict[str, Any], judged: Judgements) -> None:
    pcie, busy = part(gpu, "pcie"), gpu.get("busy") is True
    width, most = count(pcie, "width"), count(pcie, "width_max")
    if width is not None and most is not None and 0 < width < most:
        when = "under load" if busy else "while idle, which may change under load"
        judged.add(gpu, "pcie", "bad" if busy else "warn", "PCIe at x%d of x%d %s" % (width, most, when), "gpu-pcie")
    now, best = count(pcie, "generation"), count(pcie, "generation_max")
    # An idle GPU lowers its generation to save power: no fault.
    if busy and now is not None and best is not None and 0 < now < best:
        judged.add(gpu, "pcie", "bad", "PCIe generation %d of %d under load" % (now, best), "gpu-pcie")
    device = count(pcie, "generation_device_max")
    if best is not None and device is not None and 0 < best < device:
        text = "its slot gives PCIe generation %d, the GPU could do %d" % (best, device)
        judged.add(gpu, "pcie", "note", text, "gpu-pcie")


def _clocks(gpu: Dict[str, Any], judged: Judgements) -> None:
    reasons = texts(gpu.get("reasons"))
    special = [name for name in reasons if name in _SLOW]
    for name in special:
        # The general one comes along with the reason for it.
        if name != "hw_slowdown" or len(special) == 1:
            judged.add(gpu, "clocks", "bad", _SLOW[name], "clocks-held-down")
    if "sw_power_cap" in reasons and gpu.get("busy") is True:
        judged.add(gpu, "clocks", "note", "clocks are held down by the power limit", "power-limit")
    state = str(gpu.get("perf") or "")
    at_work = (count(gpu, "utilization") or 0) >= _AT_WORK
    if at_work and state[1:].isdecimal() and int(state[1:]) > _LOWEST_STATE:
        judged.add(gpu, "clocks", "warn", "it is working in performance state %s" % state, "power-state")
    now, slowdown = count(gpu, "temperature"), count(gpu, "temperature_slowdown")
    if now is not None and slowdown is not None and now >= slowdown > 0:
        judged.add(gpu, "clocks", "bad", "%g C, the hardware slows it down above %g C" % (now, slowdown), "temperature")


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone."""
    gpus = objects(value.get("gpus"))
    judged = Judgements()
    for gpu in gpus:
        if _dead(gpu, judged):
            continue
        _memory(gpu, judged)
        _modes(gpu, judged)
        _fabric(gpu, judged)
    return _node(value, gpus) + judged.all() + judge_load(gpus) + _manager(value, gpus)


def _dead(gpu: Dict[str, Any], judged: Judgements) -> bool:
    errors = part(gpu, "errors")
    lost = gpu.get("lost")
    if isinstance(lost, str) and lost:
        judged.add(gpu, "gpus", "bad", "%s; reset it or reboot the node" % lost, "gpu-lost")
        return True
    if errors.get("handle"):
        judged.add(gpu, "gpus", "bad", str(errors["handle"]), "gpu-lost")
        return True
    for what, text in list(errors.items())[:8]:
        if text != "not permitted":
            judged.add(gpu, "gpus", "warn", "%s cannot be read: %s" % (what, text))
    recovery = gpu.get("recovery")
    if isinstance(recovery, str) and recovery not in ("none", ""):
        judged.add(gpu, "gpus", "bad", "the driver asks for recovery: %s" % recovery, "gpu-lost")
    return False


def _memory(gpu: Dict[str, Any], judged: Judgements) -> None:
    rows = part(gpu, "rows")
    if rows.get("failure") is True:
        text = "remapping a row of its memory failed; the GPU needs replacing"
        judged.add(gpu, "ecc", "bad", text, "row-remapping")
    if rows.get("pending") is True or gpu.get("retired_pending") is True:
        text = "bad memory will be replaced by spare memory at the next GPU reset"
        judged.add(gpu, "ecc", "warn", text, "row-remapping")
    uncorrected = count(part(gpu, "ecc_errors"), "uncorrected")
    if uncorrected:
        text = "%d uncorrected memory errors since the driver was loaded" % uncorrected
        judged.add(gpu, "ecc", "bad", text, "ecc-uncorrected")


def _modes(gpu: Dict[str, Any], judged: Judgements) -> None:
    for name, pair, unusual, text in (
        ("ECC", part(gpu, "ecc"), False, "ECC is off: wrong results would not be noticed"),
        ("MIG", part(gpu, "mig"), True, "MIG is on: instances cannot reach each other over NVLink"),
    ):
        if pair.get("on") is unusual:
            judged.add(gpu, name.lower(), "note", text, "gpu-modes")
        if pair.get("next") is not None and pair.get("next") != pair.get("on"):
            state = "on" if pair["next"] else "off"
            judged.add(gpu, name.lower(), "note", "%s will be %s after the next reset" % (name, state), "gpu-modes")
    mode = gpu.get("compute_mode")
    if mode == "prohibited":
        judged.add(gpu, "gpus", "bad", "its compute mode is prohibited: no program may use it", "gpu-modes")
    elif isinstance(mode, str) and mode.startswith("exclusive"):
        text = "its compute mode is exclusive: one process at a time may use it"
        judged.add(gpu, "gpus", "note", text, "gpu-modes")
    if gpu.get("persistence") is False:
        text = "persistence mode is off: the first program waits seconds for the driver"
        judged.add(gpu, "gpus", "note", text, "gpu-modes")
    limit, usual = count(gpu, "power_limit"), count(gpu, "power_limit_default")
    if limit is not None and usual is not None and 0 < limit < usual:
        judged.add(gpu, "clocks", "note", "its power limit is %g W, by default %g W" % (limit, usual), "power-limit")


def _fabric(gpu: Dict[str, Any], judged: Judgements) -> None:
    fabric = part(gpu, "fabric")
    state, status = fabric.get("state"), fabric.get("status")
    if not state or state == "not supported":
        return
    if state != "completed":
        text = "the NVLink fabric is %s: CUDA fails with 'system not yet initialized'" % state
        judged.add(gpu, "fabric", "bad", text, "nvlink-fabric")
    elif status not in (None, "success"):
        judged.add(gpu, "fabric", "bad", "joining the NVLink fabric ended with %s" % status, "nvlink-fabric")
    elif "cluster" in fabric and not fabric["cluster"] and _BETWEEN_NODES.search(str(gpu.get("name"))):
        text = "the NVLink fabric gave it no cluster: it reaches no GPU of another node over NVLink"
        judged.add(gpu, "fabric", "bad", text, "nvlink-fabric")
    if fabric.get("summary") not in (None, "healthy"):
        judged.add(gpu, "fabric", "bad", "the NVLink fabric is %s" % fabric["summary"], "nvlink-fabric")
    for name in texts(fabric.get("unhealthy")):
        judged.add(gpu, "fabric", "bad", "NVLink fabric: %s" % name.replace("_", " "), "nvlink-fabric")


def _node(value: Dict[str, Any], gpus: List[Dict[str, Any]]) -> List[Judgement]:
    judgements: List[Judgement] = []
    there, on_pci = len(gpus), texts(value.get("on_pci"))
    answered = {gpu.get("bus") for gpu in gpus}
    if there and len(on_pci) > there and value.get("all_visible") is True:
        missing = ", ".join(bus for bus in on_pci if bus not in answered) or "some"
        text = "%d GPUs are on PCI and %d answer; not: %s" % (len(on_pci), there, missing)
        # A container sees all of PCI, and those GPUs that it was given.
        verdict = "note" if value.get("container") else "warn"
        judgements.append(judgement("gpus", verdict, text, check="gpu-count"))
    judgements += [judgement("gpus", "bad", "nvidia-smi: " + problem) for problem in texts(value.get("problems"))]
    if on_pci and not there and not judgements:
        why = value.get("error") or "the driver lists none"
        text = "%d GPUs on PCI and none usable: %s" % (len(on_pci), why)
        judgements.append(judgement("gpus", "bad", text, check="gpu-count"))
    return judgements + [judgement("gpus", "warn", text) for text in texts(value.get("disagreements"))]


def _manager(value: Dict[str, Any], gpus: List[Dict[str, Any]]) -> List[Judgement]:
    """Judge the Fabric Manager, where one is wanted: it may run outside of a virtual machine."""
    manager = part(value, "fabric_manager")
    states = [part(gpu, "fabric").get("state") for gpu in gpus]
    ready = bool(states) and all(state in (None, "not supported", "completed") for state in states)
    if not count(manager, "switches") and all(state in (None, "not supported") for state in states):
        return []
    version, driver = manager.get("version"), value.get("driver")
    judgements: List[Judgement] = []
    if isinstance(version, str) and isinstance(driver, str) and version != driver:
        text = "Fabric Manager %s does not fit driver %s: they must be the same" % (version, driver)
        judgements.append(judgement("fabric", "warn" if ready else "bad", text, check="nvlink-fabric"))
    if manager.get("active") is False and not ready:
        state = manager.get("said") or "not running"
        judgements.append(judgement("fabric", "bad", "the Fabric Manager is %s" % state, check="nvlink-fabric"))
    return judgements
