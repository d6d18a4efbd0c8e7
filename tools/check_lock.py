"""Check requirements.lock: each package has one version with hashes of its files, and none a known vulnerability.

tools/advisories.toml lists the known ones; it needs no network and is not complete: it names its date.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PIN = re.compile(r"([a-z0-9][a-z0-9-]*)==([0-9][0-9A-Za-z.]*)(?: ; [^\\;]+)?( \\)?")
_HASH = re.compile(r" {4}--hash=sha256:[0-9a-f]{64}( \\)?")
#: Their builds are in different indexes, and each has other files.
_WITHOUT_HASHES = ("torch",)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def problems(lock: str, fixed: dict[str, Any]) -> list[str]:
    found: list[str] = []
    # Whether a hash has to follow the line before.
    number, open_ = 0, False
    for number, line in enumerate(lock.splitlines(), 1):
        if (hashed := _HASH.fullmatch(line)) and open_:
            open_ = bool(hashed[1])
            continue
        if open_:
            found.append(f"line {number}: a hash is expected")
            open_ = False
        if not line or line.startswith("#"):
            continue
        pin = _PIN.fullmatch(line)
        if pin is None:
            found.append(f"line {number}: {line!r} is not NAME==VERSION")
            continue
        open_ = bool(pin[3])
        if not open_ and pin[1] not in _WITHOUT_HASHES:
            found.append(f"line {number}: {pin[1]} has no hash")
        if pin[1] in fixed and _numbers(pin[2]) < _numbers(fixed[pin[1]]["version"]):
            about = fixed[pin[1]]
            found.append(f"line {number}: {pin[1]}=={pin[2]} has {about['id']}; fixed in {about['version']}")
    if open_:
        found.append(f"line {number}: a hash is missing at the end")
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
