"""Write the software bill of materials of a release, as CycloneDX JSON, from requirements.lock.

Usage: python tools/write_sbom.py OUT

It has what `pip install fabtui` installs, and what builds it, for all platforms: the versions that the tests passed
with and the hashes of their files. The same lock gives the same bytes.
"""

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: A part of the lock; a package of it with its hashes.
_PART = re.compile(r"^# app\n(.*?)^# ", re.MULTILINE | re.DOTALL)
_PACKAGE = re.compile(
    r"^([a-z0-9.-]+)==([^ ;\n]+)(?: ; ([^\\\n]+?))? ?\\\n((?: +--hash=sha256:\S+(?: \\)?\n)+)", re.MULTILINE
)


def components(lock: str) -> list[dict[str, object]]:
    part = _PART.search(lock)
    assert part is not None, "requirements.lock has no part app"
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "hashes": [
                {"alg": "SHA-256", "content": digest} for digest in re.findall(r"sha256:([0-9a-f]{64})", hashes)
            ],
            **({"properties": [{"name": "marker", "value": marker}]} if marker else {}),
        }
        for name, version, marker, hashes in _PACKAGE.findall(part[1])
    ]


def bill(lock: str, project: dict[str, object]) -> dict[str, object]:
    own = f"pkg:pypi/fabtui@{project['version']}"
    libraries = components(lock)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + lock)}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": own, "name": "fabtui", "version": project["version"]}
        },
        "components": libraries,
        "dependencies": [{"ref": own, "dependsOn": [each["bom-ref"] for each in libraries]}],
    }


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    made = bill((ROOT / "requirements.lock").read_text(), project)
    Path(sys.argv[1]).write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
