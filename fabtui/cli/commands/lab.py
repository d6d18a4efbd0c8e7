"""``fabtui lab``: nodes on this machine that stay up until they are taken down, and their faults."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

from fabtui.config.values import count
from fabtui.errors import InputError
from fabtui.lab.faults import KINDS, MAX_ENDPOINTS, LabSpec
from fabtui.lab.lab import StandingLab, standing
from fabtui.lab.network import MAX_NODES, MAX_RAILS, missing
from fabtui.nodeset import count as counted
from fabtui.nodeset import fold
from fabtui.presentation.wrapping import aligned

HELP = """\
Make nodes and networks on this machine, plant faults in them and heal them, while other commands watch.

examples:
  fabtui lab up --nodes 8 --rails 2            prints the command that tests its nodes
  fabtui lab up --nodes 3 --rails 1 --gpu      real NCCL between nodes that share the GPUs of this machine
  fabtui lab fault --list                      all kinds of faults
  fabtui lab fault n003.eth1=slow-in:6MB n005=stop
  fabtui lab fault 'n001>n002=drop'            one direction between two nodes
  fabtui lab status                            labs, and the faults that are planted
  fabtui lab heal n005                         what is planted there; without a place, everything
  fabtui lab down                              ends and removes all of it

As root, nodes are network namespaces with rails, a router and a management network. Without root they are SSH servers
on loopback addresses, which have only the faults stop and down of nodes. The network of this machine stays as it is.

exit codes: 0 done; 2 bad usage or input, or the lab could not be made
"""

#: What only some actions take.
_ONLY = {"nodes": "up", "rails": "up", "endpoints": "up", "loopback": "up", "gpu": "up", "list": "fault"}


def execute(args: argparse.Namespace) -> int:
    given = vars(args)
    action = args.action
    for name, where in _ONLY.items():
        if name in given and action != where:
            raise InputError(f"--{name} belongs to fabtui lab {where}")
    words = given.get("faults", [])
    if words and action not in ("fault", "heal"):
        raise InputError(f"fabtui lab {action} takes no {words[0][:60]!r}")
    if "list" in given:
        _list()
        return 0
    if action == "status" and "name" not in given:
        _status(standing())
        return 0
    lab = StandingLab(given.get("name", "lab"))
    {"up": _up, "fault": _fault, "heal": _heal, "status": _one, "down": _down}[action](lab, given)
    return 0


def _list() -> None:
    rows = [["example", "", "labs"], *([kind.example, kind.help, ", ".join(kind.labs)] for kind in KINDS)]
    print("\n".join(aligned(rows, left=(0, 1, 2))))


def _up(lab: StandingLab, given: dict[str, Any]) -> None:
    nodes = count(given.get("nodes", "8"), "--nodes", 1, MAX_NODES)
    why = "--loopback" if "loopback" in given else missing()
    if why and "rails" in given:
        raise InputError(f"--rails needs network namespaces, and this lab has none ({why})")
    rails = 0 if why else count(given.get("rails", "2"), "--rails", 1, MAX_RAILS)
    gpus = _gpus(why) if "gpu" in given else 0
    endpoints = count(given.get("endpoints", "1" if gpus else str(rails or 2)), "--endpoints", 1, gpus or MAX_ENDPOINTS)
    began = time.monotonic()
    lab.up(nodes, rails, endpoints, gpus)
    print(f"{_title(lab, lab.ask('status'))}, made in {time.monotonic() - began:.1f} s")
    if why and "loopback" not in given:
        print(f"these nodes have no networks of their own, so only the faults stop and down can be planted: {why}")
    named = "" if lab.name == "lab" else f" --name {lab.name}"
    example = f"n{min(3, nodes - 1):03d}=stop" if why else f"n{min(3, nodes - 1):03d}.eth{rails - 1}=loss-out:5%"
    rows = [
        ["test it:", _use(lab, nodes)],
        ["break it:", f"fabtui lab fault{named} {example}", "(fabtui lab fault --list)"],
        ["heal it:", f"fabtui lab heal{named}"],
        ["end it:", f"fabtui lab down{named}"],
    ]
    if gpus:
        rows[0][1] += " --force"
        rows[0].append("(each node shows the others' processes on the GPUs)")
    print("\n".join(f"  {row[0]:<10} {'  '.join(row[1:])}" for row in rows))


def _gpus(why: str | None) -> int:
    """Return the number of GPUs of this machine; ``why`` is the reason why there are no namespaces, if any."""
    if why:
        raise InputError(f"--gpu needs network namespaces, and this lab has none ({why})")
    numbers = [path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()]
    if not numbers:
        raise InputError("--gpu: this machine has no GPU of NVIDIA (/dev/nvidia0); without it nodes have CPU ranks")
    return len(numbers)


def _use(lab: StandingLab, nodes: int) -> str:
    names = shlex.quote(fold(list(LabSpec((1,) * nodes).names)))
    return f"fabtui --nodes {names} --ssh-config {shlex.quote(str(lab.ssh_config))}"


def _title(lab: StandingLab, state: dict[str, Any]) -> str:
    nodes = list(LabSpec((1,) * state["nodes"]).names)
    rails = f"{counted(state['rails'], 'rail')} and a management network" if state["rails"] else "loopback addresses"
    return f"{lab.name}: {counted(len(nodes), 'node')} {fold(nodes)}, {rails}"


def _fault(lab: StandingLab, given: dict[str, Any]) -> None:
    if not given.get("faults"):
        raise InputError("no fault given; fabtui lab fault --list shows all kinds, with examples")
    _planted(lab.ask("fault", given["faults"]))


def _heal(lab: StandingLab, given: dict[str, Any]) -> None:
    _planted(lab.ask("heal", given.get("faults", [])))


def _planted(state: dict[str, Any]) -> None:
    print("planted: " + (", ".join(state["faults"]) or "nothing"))


def _status(labs: list[StandingLab]) -> None:
    if not labs:
        print("no lab is up; fabtui lab up starts one")
    for lab in labs:
        if lab.stands:
            _one(lab, {})
        else:
            print(f"{lab.name}: its process is gone; fabtui lab down --name {lab.name} removes what is left")


def _one(lab: StandingLab, given: dict[str, Any]) -> None:
    state = lab.ask("status")
    minutes = (time.time() - state["since"]) / 60
    print(f"{_title(lab, state)}, up for {minutes:.0f} min")
    print(f"  {_use(lab, state['nodes'])}")
    print("  ", end="")
    _planted(state)


def _down(lab: StandingLab, given: dict[str, Any]) -> None:
    if not lab.down():
        raise InputError(f"there is no lab named {lab.name}")
    print(f"{lab.name}: removed")
