"""The findings of the mesh among all others: which cells of the grid they are about."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from fabtui.diagnosis.mesh import mesh_findings
from fabtui.diagnosis.meshways import MeshFinding, Subject
from fabtui.diagnosis.reports import Cause
from fabtui.diagnosis.scopes import Way
from fabtui.fabric.measurement import MESH
from fabtui.fabric.model import Model
from fabtui.fabric.text import one_line

#: While a layer is being filled, what is missing looks like what is lost.
_FILLING = frozenset(f"{layer}{again}" for layer in MESH for again in ("", " again"))
_VERDICTS = {Subject.LATE: "warn", Subject.LOSS: "bad"}

_kept: WeakKeyDictionary[Model, tuple[int, list[Cause]]] = WeakKeyDictionary()


def mesh_causes(model: Model) -> list[Cause]:
    """Return what is wrong between addresses; while the mesh is under way, what was found before."""
    version, found = _kept.get(model, (-1, []))
    if model.phase.name in _FILLING or version == model.addresses.version:
        return found
    found = [_cause(model, finding) for finding in mesh_findings(model)]
    _kept[model] = (model.addresses.version, found)
    return found


def _cause(model: Model, finding: MeshFinding) -> Cause:
    cells = {pair for _, way in finding.cells for pair in _pairs(model, way)}
    following = (one_line(finding.next, 300),) if finding.next else ()
    evidence = tuple(one_line(line, 300) for line in finding.evidence)
    verdict = _VERDICTS.get(finding.subject, "bad")
    return Cause(verdict, one_line(finding.text, 300), frozenset(cells), evidence, following, len(finding.cells))


def _pairs(model: Model, way: Way) -> Iterable[tuple[str, str]]:
    """Yield the pairs of endpoints whose data goes this way by itself; where that is not known, it may be any."""
    for source in model.endpoints_of(way.src):
        if source.address in (way.src_addr, None):
            for target in model.endpoints_of(way.dst):
                if target.address in (way.dst_addr, None):
                    yield str(source), str(target)
