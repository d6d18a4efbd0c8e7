"""NCCL and CUDA libraries that a node's system has, outside of any Python."""

from __future__ import annotations

import glob
import os
import re
from typing import Dict, Iterable, List, Optional

from fabtui_node.system import run_command

#: Folders of libraries of the system.
SYSTEM_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")
_FOLDERS = (
    *SYSTEM_FOLDERS,
    "/usr/local/nccl*/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/nvidia/lib64",
    "/opt/nccl*/lib",
    "/opt/nccl*/build/lib",
)
_NAMES = ("libnccl.so*", "libcuda.so*", "libcudart.so*")
_LISTED = re.compile(r"\s+lib(?:nccl|cuda|cudart)\.so[0-9.]*\s.*=> (/\S{1,500})$")
_MAX_FOUND = 32


def parse_ldconfig(text: str) -> List[str]:
    """Return the paths that ``ldconfig -p`` lists for NCCL and CUDA."""
    matches = (_LISTED.match(line) for line in text.splitlines())
    return [match.group(1) for match in matches if match]


def version_of(path: str) -> Optional[str]:
    """Return the version in the name of the file that a library's path leads to, None if the name has none."""
    found = re.search(r"\.so\.([0-9]{1,6}(?:\.[0-9]{1,6}){1,3})$", os.path.realpath(path))
    return found.group(1) if found else None


def find(environ: Dict[str, str], deadline: float) -> List[str]:
    """Return the libraries on the loader's paths and in the usual folders, each file once."""
    paths = [path for folder in loader_folders(environ) for path in _in(glob.escape(folder))]
    paths.extend(parse_ldconfig(run_command.run(["ldconfig", "-p"], deadline).stdout))
    for folder in _FOLDERS:
        paths.extend(_in(folder))
    found: Dict[str, str] = {}
    for path in paths:
        file = os.path.realpath(path)
        if os.path.isfile(file):
            found.setdefault(file, path)
    return list(found.values())[:_MAX_FOUND]


def loader_folders(environ: Dict[str, str]) -> List[str]:
    return [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder.startswith("/")]


def named(paths: Iterable[str], name: str) -> List[str]:
    return [path for path in paths if os.path.basename(path).startswith(name)]


def _in(folder: str) -> List[str]:
    return [path for name in _NAMES for path in sorted(glob.glob(os.path.join(folder, name)), key=len)]
