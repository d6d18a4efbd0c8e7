"""Providers of libfabric: ``fi_info``, with ``-p efa`` those of Elastic Fabric Adapters."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines

_FIELD = re.compile(r"\s{0,8}(provider|fabric|domain|version|type|protocol):\s{1,4}(\S{1,100})\s*")
_FAILED = re.compile(r"fi_getinfo: -?\d{1,4}.{0,100}|fi_info: .{1,100}", re.IGNORECASE)
_MOST = 2048


def parse(text: str) -> Reading:
    """Return ``endpoints`` (``provider``, ``fabric``, ``domain``, ``version``, ``type``, ``protocol``), ``domains``.

    ``domains`` are the devices of the provider ``efa``; ``error`` is why there is no endpoint.
    """
    notes = Notes()
    endpoints: List[Dict[str, Any]] = []
    error: Optional[str] = None
    for line in plain_lines(text):
        if match := _FIELD.fullmatch(line):
            if match[1] == "provider" or not endpoints:
                if len(endpoints) >= _MOST:
                    notes.warn("only the first %d endpoints are read" % _MOST)
                    break
                endpoints.append(dict.fromkeys(("provider", "fabric", "domain", "version", "type", "protocol")))
            endpoints[-1][match[1]] = match[2]
        elif failed := _FAILED.search(line):
            error = error or failed[0].strip()
            notes.warn("%s: libfabric finds no device for this provider" % failed[0].strip())
        elif line.strip() and not line.lstrip().startswith(("#", "$")):
            notes.puzzled(line)
    domains = dict.fromkeys(
        one["domain"].rpartition("-")[0] or one["domain"]
        for one in endpoints
        if one["domain"] and str(one["provider"]).startswith("efa")
    )
    if endpoints and not all(endpoints[-1].values()):
        notes.warn("the last endpoint is not complete: the text may be cut off")
    return notes.reading({"domains": list(domains), "endpoints": endpoints, "error": error})


FORMATS = [
    Format(
        "fi_info",
        "providers of libfabric: fi_info, and EFA devices",
        first_of(
            (0.95, r"^\s{0,8}protocol: FI_PROTO_\w|^\s{0,8}type: FI_EP_\w"),
            (0.9, r"^provider: [a-z][\w;]{1,40}\n\s{0,8}fabric: |^\s{0,4}fabric: \S{1,80}\n\s{0,4}domain: "),
            (0.9, r"fi_getinfo: -\d{1,4}"),
        ),
        parse,
        aliases="fi-info|libfabric",
    )
]
