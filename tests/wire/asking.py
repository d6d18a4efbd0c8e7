"""SSH servers that ask for a password or a one-time code, and count what they are answered."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import asyncssh

from fabtui.lab.server import feed
from tests.wire.sshd import free_port

USER = "alice"


@dataclass
class Asking:
    """The servers of a test: what they ask, what they take, and what came."""

    right: Callable[[str], bool]
    prompt: str = "Password: "
    password_only: bool = False  #: Whether they know the method `password` alone.
    answers: list[tuple[str, str]] = field(default_factory=list)
    config: Path = Path()
    home: Path | None = None  #: Home and folder for temporary files of all nodes, None: those of this process.

    def take(self, node: str, answer: str) -> bool:
        self.answers.append((node, answer))
        return self.right(answer)


class _Server(asyncssh.SSHServer):
    def __init__(self, node: str, asking: Asking) -> None:
        self._node, self._asking = node, asking

    def public_key_auth_supported(self) -> bool:
        return False

    def password_auth_supported(self) -> bool:
        return self._asking.password_only

    def validate_password(self, username: str, password: str) -> bool:
        return self._asking.take(self._node, password)

    def kbdint_auth_supported(self) -> bool:
        return not self._asking.password_only

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, Sequence[tuple[str, bool]]]:
        return "", "Two factors \x1b[2Jare needed", "", [(self._asking.prompt, False)]

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        return self._asking.take(self._node, responses[0])


async def _run(home: Path | None, process: asyncssh.SSHServerProcess[bytes]) -> None:
    own = {} if home is None else {"HOME": str(home), "TMPDIR": str(home)}
    child = await asyncio.create_subprocess_shell(
        process.command or "true",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **own},
        start_new_session=True,
    )
    await process.redirect(None, child.stdout, child.stderr)
    feeding = asyncio.create_task(feed(process, child))
    process.exit(await child.wait())
    await feeding


@asynccontextmanager
async def asking_servers(folder: Path, nodes: Sequence[str], asking: Asking) -> AsyncIterator[Asking]:
    """Run the servers of nodes; yields their record with the ssh_config that names them."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    blocks, known = [], []
    async with AsyncExitStack() as stack:
        for number, node in enumerate(nodes):
            address = f"127.0.2.{number + 10}"
            port = free_port(address)
            server = await asyncssh.listen(
                address,
                port,
                family=socket.AF_INET,
                server_factory=lambda node=node: _Server(node, asking),
                server_host_keys=[key],
                process_factory=partial(_run, asking.home),
                encoding=None,
            )
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            blocks += [f"Host {node}", f"  HostName {address}", f"  Port {port}"]
            known.append(f"[{address}]:{port} {key.export_public_key().decode().strip()}")
        (folder / "known").write_text("\n".join([*known, ""]))
        blocks += ["Host *", f"  User {USER}", "  IdentityFile none", "  IdentityAgent none", "  ControlPath none"]
        blocks += [f'  UserKnownHostsFile "{folder}/known"', "  GlobalKnownHostsFile /dev/null", ""]
        asking.config = folder / "asking_config"
        asking.config.write_text("\n".join(blocks))
        yield asking
