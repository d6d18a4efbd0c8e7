"""The lab over real SSH connections: asyncssh as the client, and OpenSSH where there is one."""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import pytest_asyncio

from fabtui.errors import InputError
from fabtui.lab.faults import LabSpec, parse_faults
from fabtui.lab.lab import Lab
from fabtui_node import protocol
from fabtui_node.runtime.bootloader import BOOT, pack
from tests.wire.nodeside import living, modules, tokens_of, wait_gone, wait_until


def lab_of(text: str, *faults: str) -> Lab:
    spec = LabSpec.parse(text)
    return Lab(spec, parse_faults(faults, spec))


def reach(lab: Lab, node: str, **options: Any) -> Any:
    return asyncssh.connect(node, config=[str(lab.ssh_config)], connect_timeout=8, **options)


async def ask(lab: Lab, node: str, command: str, given: bytes = b"") -> Any:
    async with reach(lab, node) as connection:
        return await connection.run(command, input=given, encoding=None, timeout=15)


def is_home(path: str) -> bool:
    return Path(path).samefile(Path.home())


async def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    await asyncio.to_thread(wait_until, condition, seconds, what)


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    value = f"fabtui-test-{uuid.uuid4().hex}"
    monkeypatch.setenv("FABTUI_TEST_TOKEN", value)
    return value


#: Tests of a lab to which they do no harm.
shared = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with lab_of("2,3,1") as lab:
        yield lab


@shared
async def test_every_node_runs_commands_as_itself(lab: Lab) -> None:
    assert lab.nodes == ["n000", "n001", "n002"]
    answers = await asyncio.gather(
        *(ask(lab, node, "echo $FABTUI_LAB_NODE $FABTUI_LAB_ENDPOINTS $FABTUI_LAB_ADDRESS; pwd") for node in lab.nodes)
    )
    assert [t.stdout.decode().split("\n")[0] for t in answers] == [
        "n000 2 127.0.60.10",
        "n001 3 127.0.60.11",
        "n002 1 127.0.60.12",
    ]
    assert all(is_home(t.stdout.decode().split("\n")[1]) for t in answers)
    python = await ask(lab, "n000", "echo $FABTUI_LAB_PYTHON")
    assert python.stdout.decode().strip() == sys.executable


@shared
async def test_streams_are_binary_whole_and_apart(lab: Lab) -> None:
    data = bytes(range(256)) * 8192
    done = await ask(lab, "n000", "cat; printf 'on\\377stderr' >&2; exit 7", data)
    assert done.stdout == data
    assert done.stderr == b"on\xffstderr"
    assert done.exit_status == 7
    assert (await ask(lab, "n000", "kill -9 $$")).exit_signal[0] == "KILL"
    assert (await ask(lab, "n000", "exit 0")).exit_status == 0


@shared
async def test_a_client_that_does_not_read_holds_the_command_back(lab: Lab) -> None:
    async with reach(lab, "n000") as connection:
        process = await connection.create_process("head -c 30000000 /dev/zero; echo done >&2", encoding=None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.stderr.read(4), 1)
        async with asyncio.timeout(30):
            total = 0
            while data := await process.stdout.read(1 << 20):
                total += len(data)
            assert total == 30000000
            assert await process.stderr.read() == b"done\n"


async def test_files_are_private_strict_and_gone_afterwards() -> None:
    async with lab_of("2x1") as lab:
        folder = lab.ssh_config.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "client_key").stat().st_mode) == 0o600
        config = lab.ssh_config.read_text()
        assert config.count("StrictHostKeyChecking yes") == 2
        (folder / "known_hosts").write_text("")
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            await ask(lab, "n000", "true")
        with pytest.raises(asyncssh.PermissionDenied):
            await ask_with_another_key(lab)
    assert not folder.exists()


async def ask_with_another_key(lab: Lab) -> None:
    place = lab.places[0]
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with asyncssh.connect(
        place["address"],
        place["port"],
        known_hosts=None,
        client_keys=[key],
        agent_path=None,
        config=None,
        username="root",
    ):
        pass


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
@shared
async def test_openssh_reaches_the_nodes_too(lab: Lab) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        ["ssh", "-F", str(lab.ssh_config), "n001", "cat; echo $FABTUI_LAB_NODE"],
        input=b"x" * 200000,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.stdout == b"x" * 200000 + b"n001\n"
    assert (done.returncode, done.stderr) == (0, b"")


async def test_the_end_of_a_channel_closes_stdin_and_kills_nothing(token: str) -> None:
    async with lab_of("1x1") as lab:
        connection = await reach(lab, "n000")
        await connection.create_process("cat >/dev/null; exec sleep 601")
        await wait_for(lambda: _argv(token, "sleep") or _argv(token, "cat"), 20, "the command does not run")
        connection.abort()
        # The end of its input lets the shell go on to sleep, and nobody kills that.
        await wait_for(lambda: _argv(token, "sleep"), 20, "stdin was not closed")
        await asyncio.sleep(0.5)
        assert _argv(token, "sleep")
    wait_gone(token)


def _argv(token: str, word: str) -> list[int]:
    found = []
    for pid in living(token):
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] == word.encode():
                found.append(pid)
        except OSError:
            continue
    return found


@shared
async def test_signals_reach_the_command(lab: Lab) -> None:
    async with reach(lab, "n000") as connection:
        process = await connection.create_process("echo up; exec sleep 600")
        async with asyncio.timeout(20):
            assert await process.stdout.readline() == "up\n"
            process.terminate()
            done = await process.wait()
        assert done.exit_signal is not None
        assert done.exit_signal[0] == "TERM"


async def test_down_refuses_and_hang_is_silent_while_others_answer() -> None:
    async with lab_of("3x1", "n001=down", "n002=hang") as lab:
        with pytest.raises(ConnectionRefusedError):
            await ask(lab, "n001", "true")
        place = lab.places[2]
        reader, writer = await asyncio.open_connection(place["address"], place["port"])
        writer.write(b"SSH-2.0-test\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 1)
        writer.close()
        assert (await ask(lab, "n000", "echo yes")).stdout == b"yes\n"


async def test_dead_after_kills_all_of_one_node(token: str) -> None:
    async with lab_of("2x1", "n001=dead-after:2") as lab:
        await asyncio.sleep(2.1)
        # The clock starts with the first command, not with the lab.
        nasty = "trap '' TERM HUP INT; (setsid sleep 602 &) ; echo up; sleep 603"
        async with reach(lab, "n001") as dying, reach(lab, "n000") as other:
            await other.create_process("sleep 604")
            async with asyncio.timeout(20):
                lost = await dying.create_process(nasty)
                assert await lost.stdout.readline() == "up\n"
                done = await lost.wait()
            assert done.exit_status is None
            await wait_for(lambda: len(_argv(token, "sleep")) == 1, 15, "the node's processes live on")
            with pytest.raises(ConnectionRefusedError):
                await ask(lab, "n001", "true")
            assert (await other.run("echo yes")).stdout == "yes\n"
    wait_gone(token)


async def test_sixteen_nodes_answer(token: str) -> None:
    begin = time.monotonic()
    async with lab_of("16x2") as lab:
        started = time.monotonic() - begin
        answers = await asyncio.gather(*(ask(lab, node, "echo $FABTUI_LAB_NODE") for node in lab.nodes))
        assert [t.stdout.decode().strip() for t in answers] == lab.nodes
        print(f"16 nodes: started in {started:.2f} s, answered after {time.monotonic() - begin:.2f} s")
        # Far more than it takes; a server that goes through its nodes one at a time with some wait would show.
        assert started < 40
    wait_gone(token)


HOLDER = """
import asyncio, asyncssh, signal, sys
from fabtui.lab.faults import LabSpec
from fabtui.lab.lab import Lab
# A shell without job control starts what runs in the background with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
async def main():
    async with Lab(LabSpec.parse("2x1")) as lab:
        connections = [await asyncssh.connect(node, config=[str(lab.ssh_config)]) for node in lab.nodes]
        for connection in connections:
            await connection.create_process("trap '' TERM HUP INT; (setsid sleep 605 &) ; while :; do sleep 606; done")
        print(lab.ssh_config, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("victim", ["controller", "lab"])
def test_nothing_is_left_when_a_process_is_killed(token: str, victim: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    config = Path(holder.stdout.readline().strip())
    wait_until(lambda: len(_argv(token, "sleep")) == 4, 30, "not all commands run")
    if victim == "controller":
        holder.kill()
        wait_gone(token)
        assert not config.parent.exists()
    else:
        # Its commands are orphans then, as those of a real server that is killed: they are no longer the lab's.
        server = next(pid for pid in living(token) if b"fabtui.lab.lab_daemon" in tokens_of(pid))
        os.kill(server, signal.SIGKILL)
        holder.send_signal(signal.SIGINT)
        holder.wait(30)
        assert not config.parent.exists()
        for pid in living(token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    holder.stdout.close()
    holder.wait()
    wait_gone(token)


async def test_the_node_side_runs_on_a_lab_node_and_dies_with_the_connection(token: str) -> None:
    import shlex

    async with lab_of("1x2") as lab:
        connection = await reach(lab, "n000")
        before = len(living(token))
        command = "exec " + shlex.join([sys.executable, "-IS", "-c", BOOT])
        process = await connection.create_process(command, encoding=None)
        process.stdin.write(pack(modules(), {"nonce": "00ff", "lease": 30}, "fabtui_node.runtime.supervisor"))
        got = b""
        decoder = protocol.Decoder()
        async with asyncio.timeout(30):
            while protocol.marker("00ff") not in got:
                got += await process.stdout.read(65536)
            messages = decoder.feed(got.partition(protocol.marker("00ff"))[2])
            while not messages:
                messages = decoder.feed(await process.stdout.read(65536))
        assert messages[0]["t"] == "hello"
        assert len(living(token)) > before
        connection.abort()
        await wait_for(lambda: len(living(token)) <= before, 20, "the node side lives on")
    wait_gone(token)


async def test_a_lab_that_cannot_start_gives_the_reason_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.lab.lab.sys.executable", "/bin/false")
    with pytest.raises(InputError, match="did not start") as caught:
        async with lab_of("1x1"):
            pass
    assert "\n" not in str(caught.value)
