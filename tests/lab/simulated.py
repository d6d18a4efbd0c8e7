"""A simulated InfiniBand fabric for the nodes of a network: ibsim, opensm, and tools on each node that talk to it.

The nodes see their adapters in a synthetic ``/sys/class/infiniband``. They reach the fabric with the real tools of
infiniband-diags, which a preloaded library sends to the simulator. It runs in the network between the nodes.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from fabtui.lab import network as holder
from fabtui.lab.network import Network

PRELOADS = sorted(Path("/usr/lib").glob("**/umad2sim/libumad2sim.so"))
#: What the nodes have of the tools.
TOOLS = ("ibstat", "smpquery", "sminfo", "perfquery", "iblinkinfo", "ibnetdiscover", "ibqueryerrors", "saquery")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PORT = 7070
_SERVER = "10.1.0.254"
_DEADLINE = 20.0

# One adapter is simulated for each client, so that -C chooses the client; its name and kind imitate hardware.
# The simulator has room for ten clients: the nodes share six places. The library keeps files in the current folder.
_TOOL = """\
#!/bin/bash
tool=$(basename "$0") ca=mlx5_0 words=()
while (($#)); do
    case $1 in
    -C) ca=$2; shift 2 ;;
    -P) shift 2 ;;
    *) words+=("$1"); shift ;;
    esac
done
exec 9>"{folder}/place$((RANDOM % 6))"
flock -w 20 9 || exit 75
here=$(mktemp -d) && cd "$here" || exit 1
trap 'rm -rf "$here"' EXIT
host=$(hostname)
export SIM_HOST="$host $ca" IBSIM_SERVER_NAME={server} IBSIM_SERVER_PORT={port} LD_PRELOAD={preload}
/usr/sbin/$tool "${{words[@]}}" 2>"$here/errors" >"$here/out"
code=$?
unset LD_PRELOAD
sed "s/ibsim0/$ca/; s/CA type: simulator/CA type: MT4123/; s/Link layer: IB$/Link layer: InfiniBand/" "$here/out"
cat "$here/errors" >&2
exit $code
"""

# A tmpfs in the place of sysfs that leads to the real one, but for the adapters.
_SYSFS = """\
set -e
mount -t tmpfs tmpfs /mnt
mkdir /mnt/real
mount --bind /sys /mnt/real
mount -t tmpfs tmpfs /sys
mkdir /sys/class
for entry in /mnt/real/*; do test $entry = /mnt/real/class || ln -s $entry /sys/; done
for entry in /mnt/real/class/*; do test $entry = /mnt/real/class/infiniband || ln -s $entry /sys/class/; done
ca=/sys/class/infiniband/mlx5_0
mkdir -p $ca/ports/1/gids $ca/ports/1/gid_attrs/ndevs $ca/ports/1/pkeys
echo MT4123 >$ca/hca_type
echo 20.41.1000 >$ca/fw_ver
cd $ca/ports/1
echo InfiniBand >link_layer
echo 4: ACTIVE >state
echo 5: LinkUp >phys_state
echo '200 Gb/sec (4X HDR)' >rate
echo fe80:0000:0000:0000:{guid} >gids/0
echo eth0 >gid_attrs/ndevs/0
echo 0xffff >pkeys/0
"""

#: Width 1X or 4X and speed HDR, the width 1X alone, and the speed EDR, as the simulator writes them.
_FULL, _NARROW, _EDR = "w=3 s=7 e=7", "w=1 s=7 e=7", "w=3 s=7 e=3"


def missing() -> str | None:
    """Return why such a fabric cannot be had here, or None."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    tool = next((tool for tool in ("ibsim", "opensm", *TOOLS) if shutil.which(tool, path=path) is None), None)
    if tool or not PRELOADS:
        return f"no {tool or 'libumad2sim'} on this machine"
    return holder.missing()


def topology(leaves: dict[str, list[str]], narrow: str = "", slow: str = "") -> str:
    """Return a fabric of leaves and a spine, two cables from each leaf.

    Args:
        leaves: The nodes on each leaf.
        narrow: A node whose link has one lane.
        slow: A leaf of which the second cable to the spine is slower than the first.
    """
    lines: list[str] = []
    spine: list[str] = []
    hosts: list[str] = []
    for leaf, nodes in leaves.items():
        lines.append(f'Switch\t16 "{leaf}"')
        for port, node in enumerate([*nodes, *(["mgmt"] if not spine else [])], 1):
            kind = _NARROW if node == narrow else _FULL
            lines.append(f'[{port}]\t"{node} mlx5_0"[1] {kind}')
            hosts += [f'Hca\t1 "{node} mlx5_0"', f'[1]\t"{leaf}"[{port}] {kind}', ""]
        for cable in (15, 16):
            kind = _EDR if leaf == slow and cable == 16 else _FULL
            spine.append(f'[{len(spine) + 1}]\t"{leaf}"[{cable}] {kind}')
            lines.append(f'[{cable}]\t"spine1"[{len(spine)}] {kind}')
        lines.append("")
    return "\n".join([*lines, 'Switch\t16 "spine1"', *spine, "", *hosts]) + "\n"


class Fabric:
    """A running simulator whose adapters the nodes of a network have.

    Args:
        net: The network.
        plan: The topology.
    """

    def __init__(self, net: Network, plan: str) -> None:
        self._net = net
        self._folder = net.folder / "ib"
        self._folder.mkdir()
        (self._folder / "lab.net").write_text(plan)
        self._log = self._folder / "log"
        self._manager: subprocess.Popen[bytes] | None = None
        argv = net.in_fabric(["ibsim", "-s", "-r", "-l", str(_PORT), "lab.net"])
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        try:
            self._wait_for("ready", self._log, self._process)
            self._configure()
            self._equip()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in (self._manager, self._process):
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(_DEADLINE)

    @staticmethod
    def _wait_for(text: str, log: Path, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + _DEADLINE
        while not log.exists() or text not in log.read_text(errors="replace"):
            if time.monotonic() > end or process.poll() is not None:
                logged = log.read_text(errors="replace")[-500:] if log.exists() else "no log"
                raise RuntimeError(f"{log.name}: no {text!r}: {logged}")
            time.sleep(0.02)

    def send_command(self, command: str) -> None:
        """Give the simulator a command, for example ``Unlink "n1 mlx5_0"[1]``."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    def _configure(self) -> None:
        """Start the subnet manager, which configures what is there and sweeps again every second."""
        folder = self._folder / "osm"
        folder.mkdir()
        variables = {
            "SIM_HOST": "mgmt mlx5_0",
            "IBSIM_SERVER_NAME": _SERVER,
            "IBSIM_SERVER_PORT": str(_PORT),
            "LD_PRELOAD": str(PRELOADS[0]),
            "OSM_TMP_DIR": str(folder),
            "OSM_CACHE_DIR": str(folder),
        }
        log = folder / "osm.log"
        argv = ["env", *(f"{k}={v}" for k, v in variables.items()), "opensm", "-e", "-V", "-s", "1", "-f", str(log)]
        self._manager = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *self._net.in_fabric(argv)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait_for("SUBNET UP", log, self._manager)

    def _equip(self) -> None:
        tools = self._folder / "tools"
        tools.mkdir()
        script = _TOOL.format(folder=self._folder, server=_SERVER, port=_PORT, preload=PRELOADS[0])
        for tool in TOOLS:
            (tools / tool).write_text(script)
            (tools / tool).chmod(0o755)
        config = self._net.folder / "sshd_config"
        config.write_text(config.read_text().replace("SetEnv ", f'SetEnv "PATH={tools}:{_PATH}" '))
        for name in self._net.names:
            output = self._net.on(name, str(tools / "ibstat"))
            guid = output.partition("Port GUID: 0x")[2][:16]
            groups = ":".join(guid[at : at + 4] for at in range(0, 16, 4))
            self._net.on(name, "sh", "-c", _SYSFS.format(guid=groups))
