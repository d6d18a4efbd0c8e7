import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that the process wants to start or to connect to, and cannot."""
    found: list[Any] = []

    def noted(what: str) -> Callable[..., None]:
        def refused(_: object, *args: Any, **__: Any) -> None:
            found.append((what, *args))
            raise OSError("not in this test")

        return refused

    monkeypatch.setattr(subprocess.Popen, "__init__", noted("process"))
    monkeypatch.setattr(socket.socket, "connect", noted("connection"))
    monkeypatch.setattr("os.system", noted("system"))
    return found
