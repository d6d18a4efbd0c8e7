"""Commands of schedulers that are played."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

Fake = Callable[[str, str], None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("squeue", "sacct", "flux", "kubectl"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)

    def put(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(stat.S_IRWXU)

    return put
