"""The login that ! opens: each command line runs, on real servers where it is ssh."""

import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fabtui.diagnosis.knowledge.next_commands import login_words
from fabtui.model.events import NodeState
from tests.conftest import ModelMaker
from tests.wire import sshd


def typed_into(words: list[str], line: str, folder: Path) -> str:
    """Return what a command shows on a terminal on which a line is typed; it ends with the shell."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True)
    os.close(theirs)
    os.write(ours, f"{line}; exit\n".encode())
    found = b""
    try:
        while chunk := os.read(ours, 4096):
            found += chunk
    except OSError:
        # The last process of the terminal has ended.
        pass
    finally:
        os.close(ours)
        process.wait(20)
    return found.decode(errors="replace")


def test_ssh_with_the_configuration_of_the_session_and_behind_a_jump_host(
    field: sshd.Field, make_model: Callable[[], ModelMaker], plain_folder: Path
) -> None:
    gate = field.serve("gate")
    field.serve("plain")
    behind = field.serve("behind", config=["ProxyJump gate"])
    options = {"transport": "ssh", "ssh_config": str(field.config().rename(plain_folder / "ssh_config"))}
    model = make_model().start(["plain", "behind"], options=options).model()
    for node in ("plain", "behind"):
        shown = typed_into(login_words(model, node), "echo answer $((40 + 2)) $SSH_CONNECTION", field.folder)
        assert "answer 42 " in shown, shown
    assert "answer 42 127" in shown
    assert str(behind.port) in shown
    assert gate.logged().count("Accepted publickey") == 1, "the way to one of them"


@pytest.mark.parametrize(
    ("backend", "options", "first"),
    [
        ("srun", {"placements": {"n1": ["--jobid=12", "--nodelist=n1"]}}, "srun --pty --overlap --jobid=12"),
        ("via", {"via": "kubectl -n x exec -i {node} -c main --"}, "kubectl -n x exec -it n1 -c main --"),
        ("via", {"via": "enter {node} -i"}, "enter n1 -i"),
    ],
)
def test_a_launcher_runs_a_shell_on_the_terminal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_model: Callable[[], ModelMaker],
    backend: str,
    options: dict[str, object],
    first: str,
) -> None:
    program = tmp_path / first.split()[0]
    # Runs what follows its own options, as these launchers do.
    program.write_text('#!/bin/sh\necho "called $*"\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    maker = make_model().start(["n1"], options={"transport": backend, **options})
    maker.add("node", node="n1", state=str(NodeState.READY), backend=backend)
    words = login_words(maker.model(), "n1")
    assert " ".join(words).startswith(first)
    shown = typed_into(words, "test -t 0 && echo terminal $((40 + 2))", tmp_path)
    assert "terminal 42" in shown, shown
