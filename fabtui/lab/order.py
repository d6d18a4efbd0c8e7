"""What the controller tells the lab's process to make, as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fabtui.lab.faults import NodeFault
from fabtui.lab.spec import LabSpec


@dataclass(frozen=True, slots=True)
class Order:
    """What the lab's process is told to make."""

    spec: LabSpec
    faults: tuple[NodeFault, ...]

    def to_json(self) -> str:
        """Return the line that says this."""
        faults = [[f.node, f.kind, f.after, f.text, f.variable] for f in self.faults]
        return json.dumps({"endpoints": self.spec.endpoints, "faults": faults})

    @classmethod
    def from_json(cls, line: str) -> Order:
        """Return what a line of ``to_json`` says."""
        given = json.loads(line)
        faults = [
            NodeFault(node, kind, after, text, None if variable is None else (variable[0], variable[1]))
            for node, kind, after, text, variable in given["faults"]
        ]
        return cls(LabSpec(tuple(given["endpoints"])), tuple(faults))
