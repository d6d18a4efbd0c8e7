"""The findings of the mesh among all others: which cells of the grid they are about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fabtui.diagnosis.mesh.paths import MeshFinding, Subject
from fabtui.diagnosis.mesh.rules import mesh_findings
from fabtui.diagnosis.mesh.scopes import Way
from fabtui.diagnosis.reports import Cause
from fabtui.model.layers import MESH, Layer
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line

#: While a layer is being filled, what is missing looks like what is lost.
_FILLING = frozenset(f"{layer}{again}" for layer in MESH for again in ("", " again"))
#: Pings that are dropped while datagrams pass are no trouble for a job.
_VERDICTS = {Subject.LATE: "warn", Subject.ECHO: "warn"}


class _Known(NamedTuple):
    version: int
    causes: list[Cause]
    closed: frozenset[tuple[str, str]]


_kept: WeakKeyDictionary[Model, _Known] = WeakKeyDictionary()


def mesh_causes(model: Model) -> list[Cause]:
    """Return what is wrong between addresses; while the mesh is under way, what was found before."""
    return _known(model).causes


def closed_pairs(model: Model) -> frozenset[tuple[str, str]]:
    """Return the pairs of endpoints between whose addresses nothing passes, or no TCP, or nothing large."""
    return _known(model).closed


def _known(model: Model) -> _Known:
    known = _kept.get(model, _Known(-1, [], frozenset()))
    if model.phase.name in _FILLING or known.version == model.addresses.version:
        return known
    findings = mesh_findings(model)
    found = [_cause(model, finding) for finding in findings]
    closed = {pair for finding in findings for way in _closed_ways(finding) for pair in _pairs(model, way)}
    known = _kept[model] = _Known(model.addresses.version, found, frozenset(closed))
    return known


def _closed_ways(finding: MeshFinding) -> set[Way]:
    """Return the ways of a finding on which no data of a pair gets through either."""
    if finding.subject is Subject.CUT or finding.text.startswith("MTU black hole"):
        return {way for _, way in finding.cells}
    return {way for layer, way in finding.cells if finding.subject is Subject.FIREWALL and layer is Layer.TCP}


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
