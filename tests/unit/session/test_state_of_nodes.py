"""The state of nodes in a session: one key for all of them, which is kept nowhere, and a recording of differences."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from fabtui.model.events import ProbeResult
from fabtui.model.facts.states import PROBE
from fabtui.model.recording import read_events
from tests.unit.session.fakenodes import Script
from tests.unit.session.played import run


def sent(**facts: str) -> dict[str, Any]:
    data = zlib.compress(json.dumps({key.replace("__", "."): value for key, value in facts.items()}).encode())
    return {"state": base64.b64encode(data).decode(), "failed": {}}


async def test_the_key_is_kept_nowhere_and_equal_values_are_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    common = {f"sysctl__s{at}": str(at) for at in range(1000)}
    results = {name: {PROBE: sent(**common, own=name)} for name in "abcd"}
    results["d"][PROBE]["state"] = "!"
    script = Script(dict.fromkeys("abcd", 1), probe_results=results)
    model, nodes = await run(script, record=path, preflight_only=True)
    keys = {
        message["args"]["key"]
        for link in nodes.links.values()
        for message in link.sent
        if message["t"] == "probe" and message["name"] == PROBE
    }
    (key,) = keys
    assert len(bytes.fromhex(key)) >= 16
    assert key not in gzip.decompress(path.read_bytes()).decode()
    events = [one for one in read_events(path) if isinstance(one, ProbeResult) and one.probe == PROBE]
    sizes = sorted(len(json.dumps(one.value)) for one in events if one.value is not None)
    assert len(sizes) == 3
    assert sizes[1] < 100 < 10_000 < sizes[2]
    assert model.nodes["d"].probe_results[PROBE].keys() == {"error"}
