import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from fabtui.transport import payload as bootstrap
from fabtui_node.registry import PROBES
from fabtui_node.runtime.bootloader import INPUT_TAKEN

MODULES = {
    "fabtui_node": "",
    "fabtui_node.runtime.bootloader": (
        "import sys\n"
        "def start(payload):\n"
        "    space = {'__name__': payload['entry']}\n"
        "    exec(payload['modules'][payload['entry']], space)\n"
        "    space['main'](payload['config'])\n"
    ),
    "entry": (
        "import os, sys\n"
        "def main(config):\n"
        "    os.write(1, b'%d|%s|%s' % (os.getpid(), config['word'].encode(), os.read(0, 100)))\n"
    ),
}


def packed(word: str) -> bytes:
    return bootstrap.Payload(MODULES).packed({"word": word}, "entry")


def run(command: str, data: bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh", "-c", command], input=data, capture_output=True, timeout=60, env=environment or None, check=False
    )


def test_the_payload_is_what_the_first_stage_reads_and_no_more() -> None:
    data = packed("caf\u00e9")
    length = int(data[:8], 16)
    assert len(data) == 8 + length
    assert json.loads(zlib.decompress(data[8:])) == {
        "modules": MODULES,
        "config": {"word": "caf\u00e9"},
        "entry": "entry",
    }
    done = run(bootstrap.command(sys.executable), data + b"frames")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.split(b"|")[1:] == ["caf\u00e9".encode(), b"frames"]


def test_everything_a_node_needs_is_sent() -> None:
    bootstrap.node_modules.cache_clear()
    modules = bootstrap.node_modules()
    here = Path(bootstrap.__file__).parents[2] / "probes" / "fabtui_node"
    if here.is_dir():
        for file in here.rglob("*.py"):
            name = ".".join(("fabtui_node", *file.relative_to(here).with_suffix("").parts)).removesuffix(".__init__")
            assert modules[name] == bootstrap.lean(file.read_text())
    assert {"fabtui_node", "fabtui_node.runtime.bootloader", "fabtui_node.ranks", "pynvml"} <= set(modules)
    # Nothing of the login side goes to a node, neither its modules nor its packages, such as msgspec.
    assert {name.partition(".")[0] for name in modules} == {"fabtui_node", "pynvml"}


def test_modules_are_packed_once_for_many_configurations() -> None:
    payload = bootstrap.Payload(bootstrap.first_modules())
    first, second = payload.packed({"node": "a"}), payload.packed({"node": "b"})
    assert first != second
    for data, node in ((first, "a"), (second, "b"), (payload.packed({"node": "a"}), "a")):
        found = json.loads(zlib.decompress(data[8:]))
        assert found["config"] == {"node": node}
        assert found["entry"] == bootstrap.ENTRY
        assert found["modules"] == bootstrap.first_modules()


def imported_by(source: str) -> set[str]:
    """Return the modules of the node side that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & set(bootstrap.node_modules())


@pytest.mark.slow
def test_what_a_part_imports_comes_with_it() -> None:
    cargo, first = bootstrap.Cargo(bootstrap.ENTRY, None, ()), bootstrap.first_modules().keys()
    for part in (*PROBES, "ranks"):
        modules = cargo.modules(part) | first
        for name in modules:
            assert imported_by(bootstrap.node_modules()[name]) <= modules, f"{part}: {name}"


def test_bytes_that_come_one_by_one_are_waited_for() -> None:
    data = packed("w")
    process = subprocess.Popen(
        ["/bin/sh", "-c", bootstrap.command(sys.executable)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None
    for number in range(len(data)):
        process.stdin.write(data[number : number + 1])
    process.stdin.write(b"z")
    output, _ = process.communicate(timeout=60)
    assert output.endswith(b"|w|z")


def test_the_first_stage_ends_when_its_sender_goes() -> None:
    data = packed("w")
    for part in (b"", data[:4], data[:100]):
        assert run(bootstrap.command(sys.executable), part).returncode == 3


def test_the_shell_becomes_the_interpreter(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    data = packed("w")
    done = run(f"echo $$ > {shlex.quote(str(pid))}; " + bootstrap.command(sys.executable), data)
    assert done.stdout.split(b"|")[0].decode() == pid.read_text().strip()


def test_interpreters_are_tried_in_turn_and_named_when_none_is_there() -> None:
    data = packed("w")
    found = run(bootstrap.command(None, ("no-such-python", "/nor/this", sys.executable)), data)
    assert found.returncode == 0
    missing = run(bootstrap.command(None, ("no-such-python", "nor-this")), data)
    assert missing.returncode == 127
    assert b"no-such-python nor-this" in missing.stderr


def test_a_home_relative_interpreter(tmp_path: Path) -> None:
    (tmp_path / "py thon").symlink_to(sys.executable)
    data = packed("w")
    assert run(bootstrap.command("~/py thon"), data, HOME=str(tmp_path), PATH="/usr/bin:/bin").returncode == 0


@pytest.mark.parametrize("hostile", ["a;touch X", "$(touch X)", "`touch X`", "'; touch X; '", "-c", "a\ntouch X"])
def test_the_name_of_an_interpreter_is_only_a_name(
    hostile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(bootstrap.command(hostile), b"").returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_the_command_is_fit_for_any_login_shell() -> None:
    command = bootstrap.command()
    # csh would take an exclamation mark for history and ends a quoted word at a newline.
    assert not set("!\n") & set(command)
    assert shlex.split(command)[:3] == ["exec", "sh", "-c"]
    assert len(command) < 4000


def test_an_old_interpreter_reports_it_or_hands_over() -> None:
    old = f"import sys; sys.version_info = (3, 6, 8); sys.argv = {{}}; exec({bootstrap.BOOT!r})"
    alone = subprocess.run(
        [sys.executable, "-c", old.format(["-c", bootstrap.BOOT])], capture_output=True, timeout=60, check=False
    )
    assert alone.returncode == 127
    assert b"3.6 is too old" in alone.stderr
    argv = ["-c", bootstrap.BOOT, "no-such-python", sys.executable]
    data = packed("w")
    over = subprocess.run(
        [sys.executable, "-c", old.format(argv)], input=data + b"f", capture_output=True, timeout=60, check=False
    )
    assert over.stdout.endswith(b"|w|f")


def test_a_login_that_takes_a_part_of_the_payload_is_recognised() -> None:
    done = run(f"dd bs=3 count=1 of=/dev/null 2>/dev/null; {bootstrap.command(sys.executable)}", packed("x"))
    assert (done.returncode, done.stderr, done.stdout) == (INPUT_TAKEN, b"", b"")


#: Head of a program for AArch64; interpreters that cannot be executed, with a part of the reason.
ALIEN = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(44)
UNFIT = {
    "alien": (ALIEN, 0o755, "format error"),
    "forbidden": (b"", 0o644, "ermission"),
    "lost": (b"#!/no/p\n", 0o755, ""),
}


@pytest.mark.parametrize("kind", UNFIT)
@pytest.mark.parametrize("shell", [path for name in ("dash", "bash", "busybox") if (path := shutil.which(name))])
def test_an_interpreter_that_cannot_be_executed_is_named_and_the_next_one_is_tried(
    tmp_path: Path, shell: str, kind: str
) -> None:
    (tmp_path / "sh").symlink_to(shell)
    unfit = tmp_path / "python3"
    content, mode, reason = UNFIT[kind]
    unfit.write_bytes(content)
    unfit.chmod(mode)
    path = f"{tmp_path}:/usr/bin:/bin"
    found = run(bootstrap.command(None, (str(unfit), "no-such-python", sys.executable, "x y")), packed("w"), PATH=path)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split(b"|")[1] == b"w"
    missing = run(bootstrap.command(None, (str(unfit), "no-such-python")), b"", PATH=path)
    last = missing.stderr.decode().strip().splitlines()[-1]
    assert missing.returncode == 127
    assert re.match(rf"no python3 runs, tried: {unfit} \(.*{reason}.*\) no-such-python", last), missing.stderr
    assert "import" not in missing.stderr.decode()
