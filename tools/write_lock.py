"""Print the versions of all installed packages, as a constraints file for pip."""

from __future__ import annotations

import re
from importlib.metadata import distributions

#: Installed by venv itself, or the project.
LEFT_OUT = {"pip", "setuptools", "fabtui"}


def pins() -> list[str]:
    """Return ``name==version`` of each installed package, without local version labels such as ``+cpu``."""
    found = {
        re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(): each.version.partition("+")[0]
        for each in distributions()
    }
    return [f"{name}=={version}" for name, version in sorted(found.items()) if name not in LEFT_OUT]


if __name__ == "__main__":
    print("# Versions that the tests passed with (make lock). pip takes them as constraints.")
    print(*pins(), sep="\n")
