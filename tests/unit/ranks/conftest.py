"""The engines' tests drive rank hosts with the controller of tests/wire."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def fake_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda and a libnccl of ours, made from one C file."""
    folder = tmp_path_factory.mktemp("fake_gpu")
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / "fake_gpu.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(HERE / "fake_gpu.c"), "-lpthread"]
    subprocess.run(command, check=True, timeout=60)
    for name in ("libcuda.so.1", "libnccl.so.2"):
        (folder / name).symlink_to(library)
    return folder
