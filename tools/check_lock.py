"""Check that requirements.lock pins every package to one version, and none with a known vulnerability.

tools/advisories.toml lists the known ones; it needs no network and is not complete: it names its date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PIN = re.compile(r"([a-z0-9][a-z0-9-]*)==([0-9][0-9A-Za-z.]*)")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def problems(lock: str, fixed: dict[str, Any]) -> list[str]:
    """Return what is wrong with the text of a lock file."""
    found: list[str] = []
    for number, line in enumerate(lock.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        pin = _PIN.fullmatch(line)
        if pin is None:
            found.append(f"line {number}: {line!r} is not NAME==VERSION")
        elif pin[1] in fixed and _numbers(pin[2]) < _numbers(fixed[pin[1]]["version"]):
            found.append(f"line {number}: {line} has {fixed[pin[1]]['id']}; fixed in {fixed[pin[1]]['version']}")
    return found


def main() -> int:
    """Print the problems; return 1 if there are any."""
    known = tomllib.loads((ROOT / "tools" / "advisories.toml").read_text())
    found = problems((ROOT / "requirements.lock").read_text(), known["fixed"])
    print(*(f"requirements.lock: {problem}" for problem in found), sep="\n", end="\n" if found else "")
    print(f"requirements.lock: {len(found)} problems; advisories up to {known['date']}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
