"""Real OpenSSH servers on loopback addresses, each with its own keys, configuration and fault."""

import asyncio
import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def missing() -> str | None:
    """Return what this machine lacks to run servers, None if nothing."""
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"no {program} here"
    if SSHD is None:
        return "no sshd here"
    return None


def proc_text(name: str) -> str:
    """Return a file of ``/proc``; nothing if its process or thread has ended."""
    try:
        return Path("/proc", name).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid: int) -> bool:
    """Return True if a process runs and is not a zombie."""
    return proc_text(f"{pid}/stat").rpartition(")")[2].split()[:1] not in ([], ["Z"])


async def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something is true, with a timeout (s)."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)


async def wait_gone(pid: int) -> None:
    await until(lambda: not alive(pid))


def children() -> list[str]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in proc_text(f"self/task/{task.name}/children").split():
            if command := proc_text(f"{pid}/cmdline"):
                found.append(command.replace("\0", " "))
    return found


def login_variables(home: Path) -> dict[str, str]:
    """Return variables of logins on nodes: where torch is light, and a home without slow files of shells."""
    return {"HOME": str(home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> str:
    """Make a key pair, return the public half without its comment."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "", "-f", path], check=True)
    return public_half(path)


def public_half(path: Path) -> str:
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


@dataclass
class Server:
    name: str
    address: str
    port: int
    host_key: str = ""
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    lines: list[str] = field(default_factory=list)

    @property
    def known_name(self) -> str:
        return f"[{self.address}]:{self.port}"

    def logged(self) -> str:
        return self.log.read_text() if self.log else ""

    def sessions(self) -> list[int]:
        """Return the processes sshd forked for connections: one each, or a monitor and the process it guards."""
        assert self.process is not None
        found: list[int] = []
        below = [self.process.pid]
        while below:
            pid = below.pop()
            for child in proc_text(f"{pid}/task/{pid}/children").split():
                if proc_text(f"{child}/comm").startswith("sshd"):
                    found.append(int(child))
                    below.append(int(child))
        return found

    def stop(self) -> None:
        if self.process is None:
            return
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(5)


class Field:
    """Servers, a user's keys and known hosts, and the ssh_config that names them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user_key = folder / "id_user"
        self.authorized = make_key(self.user_key)
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self.servers: dict[str, Server] = {}
        self.sockets: list[socket.socket] = []
        if os.getuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)

    def _add(self, name: str, options: Sequence[str], port: int | None = None) -> Server:
        before = self.servers.get(name)
        address = before.address if before is not None else f"127.0.1.{len(self.servers) + 10}"
        server = self.servers[name] = Server(name, address, port or free_port(address), lines=list(options))
        return server

    def serve(
        self,
        name: str,
        *,
        sshd: Sequence[str] = (),
        config: Sequence[str] = (),
        known: bool = True,
        kind: str = "ed25519",
        certify: Path | None = None,
        port: int | None = None,
    ) -> Server:
        """Start a server; ``sshd`` are lines for its configuration, ``config`` for the user's."""
        assert SSHD is not None
        server = self._add(name, config, port)
        key = self.folder / f"host_{name}"
        # A server that starts again has the same key.
        server.host_key = public_half(key) if key.exists() else make_key(key, kind)
        if known:
            self.know(server.known_name, server.host_key)
        (self.folder / f"authorized_{name}").write_text(self.authorized + "\n")
        # The first of several lines of this kind counts.
        variables = [f'"{name}={value}"' for name, value in login_variables(self.folder).items()]
        variables += [line.removeprefix("SetEnv ") for line in sshd if line.startswith("SetEnv ")]
        lines = [
            f"SetEnv {' '.join(variables)}",
            *sshd,
            f"ListenAddress {server.address}",
            f"Port {server.port}",
            f'HostKey "{key}"',
            f'AuthorizedKeysFile "{self.folder}/authorized_{name}"',
            f'PidFile "{self.folder}/pid_{name}"',
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            "LogLevel VERBOSE",
            # sshd takes the last value of this one, and the first of all others.
            *([] if any(line.startswith("MaxStartups") for line in sshd) else ["MaxStartups 500:30:1000"]),
        ]
        if certify is not None:
            subprocess.run(
                ["ssh-keygen", "-q", "-s", certify, "-I", name, "-h", "-n", f"{server.address},{name}", f"{key}.pub"],
                check=True,
            )
            lines.append(f'HostCertificate "{key}-cert.pub"')
        conf = self.folder / f"sshd_{name}"
        conf.write_text("\n".join([*lines, ""]))
        server.log = self.folder / f"log_{name}"
        with server.log.open("wb") as log:
            server.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", conf], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        give_up = time.monotonic() + 20
        while "Server listening" not in server.logged():
            if server.process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"sshd did not start: {server.logged()}")
            time.sleep(0.01)
        return server

    def nobody(self, name: str, *, config: Sequence[str] = ()) -> Server:
        """Name a host where nothing listens."""
        return self._add(name, config)

    def silent(self, name: str) -> Server:
        """Name a host that accepts connections and never sends a banner."""
        server = self._add(name, ())
        listener = socket.create_server((server.address, server.port), backlog=64)
        self.sockets.append(listener)
        return server

    def know(self, name: str, key: str, marker: str = "") -> None:
        with self.known_hosts.open("a") as file:
            file.write(f"{marker} {name} {key}\n".lstrip())

    def hash_known(self) -> None:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", self.known_hosts], check=True, capture_output=True)

    def sign_user(self, authority: Path) -> None:
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", getpass.getuser(), f"{self.user_key}.pub"]
        subprocess.run(sign, check=True)

    def script(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def config(self, *extra: str) -> Path:
        """Write the ssh_config; ``extra`` lines come first and so count over the rest."""
        blocks = [*extra]
        for server in self.servers.values():
            # One that is called by its address needs no lines of its own.
            if server.name != server.address or server.lines:
                blocks += [
                    f"Host {server.name}",
                    *(f"  {line}" for line in server.lines),
                    f"  HostName {server.address}",
                    f"  Port {server.port}",
                ]
        blocks += [
            "Host *",
            f"  User {getpass.getuser()}",
            f'  IdentityFile "{self.user_key}"',
            "  IdentitiesOnly yes",
            "  IdentityAgent none",
            f'  UserKnownHostsFile "{self.known_hosts}"',
            "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
            "  ControlPath none",
            "",
        ]
        path = self.folder / "ssh_config"
        path.write_text("\n".join(blocks))
        return path

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()
        for listener in self.sockets:
            listener.close()


@contextlib.contextmanager
def agent(*keys: Path) -> Iterator[str]:
    """Run an ssh-agent that holds keys; yields its socket."""
    folder = keys[0].parent
    path = str(folder / "agent.sock")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 10
        while not os.path.exists(path) and time.monotonic() < give_up:
            time.sleep(0.01)
        environment = {**os.environ, "SSH_AUTH_SOCK": path, "SSH_ASKPASS": str(folder / "askpass")}
        environment |= {"SSH_ASKPASS_REQUIRE": "force", "DISPLAY": "none"}
        subprocess.run(["ssh-add", "-q", *keys], check=True, env=environment, stdin=subprocess.DEVNULL)
        yield path
    finally:
        process.kill()
        process.wait(5)
