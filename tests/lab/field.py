"""A run of ``fabtui run`` over a network with a planted fault, and what it found."""

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.lab.network import Network
from tests.forked import fabtui
from tests.wire.sshd import login_variables

#: Small messages, few iterations: enough to see who reaches whom.
QUICK = ("--ranks-per-node", "2", "--bytes", "64k", "--iters", "4", "--warmup", "1")


def network_in(folder: Path, nodes: int, rails: int, **more: Any) -> Network:
    return Network(folder, nodes, rails, variables=login_variables(folder), **more)


class Outcome(NamedTuple):
    """Exit code, output and saved session of ``fabtui run``."""

    code: int
    printed: str
    saved: dict[str, Any]

    @property
    def titles(self) -> list[str]:
        """The titles of the findings, the first one first."""
        return [finding["title"] for finding in self.saved["findings"]]

    def cells(self, *layers: str, without: str = "") -> list[dict[str, Any]]:
        """Return the measurements of layers that are not ok, of pairs without some nodes (``n1,n2``)."""
        left_out = set(without.split(","))
        return [
            m
            for m in self.saved["measurements"]
            if m["layer"] in layers
            and m["verdict"] != "ok"
            and left_out.isdisjoint((m["src"].partition(":")[0], m["dst"].partition(":")[0]))
        ]


def run(network: Network, folder: Path, *args: str) -> Outcome:
    """Run ``fabtui run`` over all nodes of a network."""
    path = folder / "session.json"
    words = ["run", "--nodes", ",".join(network.names), "--ssh-config", str(network.ssh_config), "--remote-python"]
    words += [sys.executable, "--no-record", "--json", str(path), *args]
    done = fabtui(*words, net=network.console)
    printed = done.stdout + done.stderr
    assert path.exists(), printed
    saved = json.loads(path.read_text())
    for one in saved["findings"]:
        # The first command is for what is blamed, or for this machine.
        node, (kind, name) = next((step["node"] for step in one["steps"]), None), one["subject"].values()
        blamed = (
            re.split(r"[: ]", name) if kind in ("gpu", "nic", "node", "halves", "pair", "node-pair") else one["nodes"]
        )
        assert node is None or not blamed or node in blamed, (one["title"], one["next"])
    return Outcome(done.returncode, printed, saved)
