"""``show_gids``: the GID table of all RDMA ports, and the index of each port's RoCE v2 GID of an IPv4 address."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values

_ROW = re.compile(
    r"\s*([\w.-]{1,64})\s+([0-9]{1,4})\s+([0-9]{1,5})\s+((?:[0-9a-fA-FxX*]{4}:){7}[0-9a-fA-FxX*]{4})"
    r"(?:\s+([0-9]{1,3}(?:\.[0-9]{1,3}){3}))?(?:\s+[vV]([0-9.]{1,3}))?(?:\s+(\S{1,64}))?\s*",
    re.ASCII,
)
_TITLE = re.compile(r"\s*(DEV\s+PORT\s+INDEX|---\s+----)")
_COUNT = re.compile(r"\s*n_gids_found=([0-9]{1,9})\s*", re.ASCII)


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``show_gids``."""
    if re.search(r"^[ \t]*DEV\s+PORT\s+INDEX\s+GID", text, re.MULTILINE) or "n_gids_found=" in text:
        return 0.97
    return 0.6 if any(_ROW.fullmatch(line) for line in text.splitlines()[:3]) else 0.0


def parse(text: str) -> Reading:
    """Return ``{"gids": [{"ca", "port", "index", "gid", "ipv4", "version", "netdev"}], "count", "roce_v2_ipv4"}``.

    ``version`` is that of RoCE: 1 or 2, and 1 for InfiniBand as well; ``count`` the number of GIDs as printed;
    ``roce_v2_ipv4`` the ``ca``, ``port``, ``index`` and ``ipv4`` of the first such GID of each port.
    """
    gids: List[Dict[str, Any]] = []
    notes = Notes()
    count = None
    for line in values.lines(text):
        row, counted = _ROW.fullmatch(line), _COUNT.fullmatch(line)
        if row:
            ca, port, index, gid, ipv4, version, netdev = row.groups()
            gids.append(
                {
                    "ca": ca,
                    "port": int(port),
                    "index": int(index),
                    # People who share such tables cross out parts of GIDs.
                    "gid": gid.lower() if "x" not in gid.lower() and "*" not in gid else None,
                    "ipv4": ipv4,
                    "version": values.digits(version),
                    "netdev": netdev,
                }
            )
        elif counted:
            count = int(counted.group(1))
        elif _TITLE.match(line):
            continue
        elif values.complaint(line):
            notes.warn(line)
        else:
            notes.puzzled(line)
    if count is None and gids:
        notes.warn("the text ends before the number of GIDs")
    elif count is not None and count != len(gids):
        notes.warn("%d of %d GIDs are in the text" % (len(gids), count))
    return notes.reading({"gids": gids, "count": count, "roce_v2_ipv4": _roce(gids)})


def _roce(gids: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    found: Dict[Any, Dict[str, Any]] = {}
    for gid in gids:
        if gid["version"] == 2 and gid["ipv4"]:
            found.setdefault((gid["ca"], gid["port"]), {key: gid[key] for key in ("ca", "port", "index", "ipv4")})
    return list(found.values())


FORMATS = [Format("show_gids", "show_gids: the GID tables of RDMA ports", (), {}, likely, parse)]
