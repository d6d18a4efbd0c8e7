"""The Python interpreters of a node, and the PyTorch and NCCL of each, found without importing them."""

from __future__ import annotations

import glob
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, List, Optional

from fabtui_node.system import run_command

_MARK = "fabtui-python:"
_AT_ONCE = 8
_MAX_CANDIDATES = 24

# Tried on every node, after what the user and the environment name. Globs.
_USUAL = (
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/conda/bin/python3",
    "/opt/miniconda3/bin/python3",
    "/opt/venv/bin/python3",
    "/venv/bin/python3",
    "~/miniconda3/bin/python3",
    "~/miniforge3/bin/python3",
    "~/.venv/bin/python3",
)

# Runs under any interpreter of the node, so it is limited to what all of Python 3 understands. find_spec of a package
# at the top level imports nothing; PyTorch has its version in a small file.
_SCRIPT = r"""
import glob, json, os, re, sys
if sys.path and sys.path[0] == "":
    del sys.path[0]
printed = {"version": ".".join(map(str, sys.version_info[:3])), "prefix": sys.prefix, "executable": sys.executable}
try:
    from importlib.util import find_spec
    def folders(name):
        spec = find_spec(name)
        return list(spec.submodule_search_locations or []) if spec else []
    def first(patterns):
        for pattern in patterns:
            for path in sorted(glob.glob(pattern), reverse=True):
                return path
    for folder in folders("torch"):
        text = open(os.path.join(folder, "version.py")).read(20000)
        found = re.search(r"__version__\s*(?::[^=\n]+)?=\s*['\"]([^'\"]+)", text)
        printed["torch"] = found.group(1) if found else None
        found = re.search(r"^cuda\s*(?::[^=\n]+)?=\s*['\"]([^'\"]+)", text, re.M)
        printed["torch_cuda"] = found.group(1) if found else None
        printed["site"] = os.path.dirname(folder)
        printed["nccl"] = first([os.path.join(folder, "lib", "libnccl.so*")])
        break
    for folder in folders("nvidia"):
        lib = os.path.join(folder, "nccl", "lib")
        nccl = first([os.path.join(lib, "libnccl.so.2"), os.path.join(lib, "libnccl.so*")])
        if nccl:
            printed["nccl"] = nccl
            wheel = first([os.path.join(os.path.dirname(folder), "nvidia_nccl_cu*.dist-info")])
            found = re.search(r"nvidia_nccl_cu[0-9]*-([0-9.]+)\.dist-info$", wheel or "")
            printed["nccl_version"] = found.group(1) if found else None
        printed["cudart"] = printed.get("cudart") or first([
            os.path.join(folder, "cu[0-9]*", "lib", "libcudart.so*"),
            os.path.join(folder, "cuda_runtime", "lib", "libcudart.so*"),
        ])
    if not printed.get("nccl"):
        printed["nccl"] = first([os.path.join(sys.prefix, "lib", "libnccl.so.2")])
except Exception as error:
    printed["error"] = "%s: %s" % (type(error).__name__, error)
print("\nMARK" + json.dumps(printed))
""".replace("MARK", _MARK)

_TEXTS = ("version", "torch", "torch_cuda", "nccl", "nccl_version", "cudart", "site", "error")


def parse_inspection(text: str) -> Optional[Dict[str, Optional[str]]]:
    """Return what the script printed, None if it printed nothing of the kind; other lines are passed over."""
    for line in text.splitlines():
        if not line.startswith(_MARK):
            continue
        try:
            printed = json.loads(line[len(_MARK) :])
        except (ValueError, RecursionError):
            return None
        if isinstance(printed, dict):
            return {key: printed[key][:500] if isinstance(printed.get(key), str) else None for key in _TEXTS}
    return None


def candidates(named: Iterable[str], environ: Dict[str, str]) -> List[str]:
    """Return the interpreters to inspect, preferred ones first, each once.

    Those that the user ``named`` come first, even if the file is missing, to report that. The environment may name a
    virtual environment.
    """
    wanted = [environ.get("FABTUI_LAB_PYTHON", "")]
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(variable):
            wanted.append(os.path.join(environ[variable], "bin/python3"))
    wanted.extend([sys.executable or "", "python3"])
    for pattern in _USUAL:
        wanted.extend(sorted(glob.glob(os.path.expanduser(pattern))))
    paths = [run_command.find(path) or path for path in map(os.path.expanduser, named)]
    seen = {_identity(path) for path in paths}
    for full in filter(None, map(run_command.find, filter(None, wanted))):
        if _identity(full) not in seen:
            seen.add(_identity(full))
            paths.append(full)
    return paths[:_MAX_CANDIDATES]


def _identity(path: str) -> str:
    # A virtual environment's interpreter is a link to its base and must not be taken for it, so only the folder's
    # links are followed.
    return os.path.join(os.path.realpath(os.path.dirname(path)), "python3")


def inspect(path: str, deadline: float) -> Dict[str, Optional[str]]:
    """Return ``{"path", "version", "torch", "torch_cuda", "nccl", "nccl_version", "cudart", "site", "error"}``."""
    entry: Dict[str, Optional[str]] = dict.fromkeys(("path", *_TEXTS))
    result = run_command.run([path, "-B", "-c", _SCRIPT], deadline, limit=200000, cwd="/")
    printed = parse_inspection(result.stdout)
    if printed is None:
        entry["error"] = result.why() or "it printed nothing of use"
    else:
        entry.update(printed)
    entry["path"] = path
    return entry


def discover(named: Iterable[str], environ: Dict[str, str], deadline: float) -> List[Dict[str, Any]]:
    """Return ``inspect`` of each candidate, all at once, in the order of ``candidates``."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda path: inspect(path, deadline), candidates(named, environ)))
