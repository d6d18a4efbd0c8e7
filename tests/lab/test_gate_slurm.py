"""The recipes of docs/gate.md in a real Slurm: they drain the nodes with a planted fault, and no other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.slurm_cluster import SlurmCluster, missing, short_folder

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}")]
ROOT = Path(__file__).resolve().parents[2]
#: Runs the gate of a node with its fault, in mounts of its own.
PLANTED = """#!/bin/sh
exec unshare --mount --propagation private sh -c '. {folder}/plant/$0; exec {python} -IS {folder}/gate.pyz "$@"' \
    "$SLURMD_NODENAME" "$@"
"""
#: A file system whose daemon never answers: nobody reads the device.
FUSE = (
    "import ctypes,os,sys; fd=os.open('/dev/fuse',os.O_RDWR); os.set_inheritable(fd,True); "
    "text='fd=%d,rootmode=40000,user_id=0,group_id=0'%fd; libc=ctypes.CDLL(None,use_errno=True); "
    "r=libc.mount(b'x',sys.argv[1].encode(),b'fuse.sshfs',0,text.encode()); assert r==0,ctypes.get_errno(); "
    "os.execv('/bin/sleep',['sleep','30'])"
)
#: What is done to a node, and a part of the reason.
FAULTS = {
    "nofile": ("ulimit -n 40", "40 open files"),
    "memlock": ("ulimit -l 64", "memlock: 65536"),
    "time": ("ulimit -t 99", "99 s of processor time"),
    "xid": ("mount --bind {folder}/xid /dev/kmsg", "Xid 79: "),
    "gpus": ("mount --bind {folder}/pci /sys/bus/pci/devices", "1 GPUs on PCI and none usable"),
    "mount": (
        'mkdir -p {folder}/dead; {python} -c "{fuse}" {folder}/dead & sleep 1',
        "dead (fuse.sshfs) does not answer",
    ),
    "interface": ("mount -t tmpfs none /sys/class/net", "interfaces that are up of the baseline missing"),
    "port": (
        "mount --bind /sys/class/net {folder}/class/net; mount --rbind {folder}/class /sys/class",
        "mlx5_0/1: Down, physical state Polling",
    ),
}
HEALTHY = 2


def recipe(name: str, folder: Path) -> None:
    """Write a recipe of the documentation, with the paths of this cluster."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "gate.md").read_text(), re.DOTALL)
    (text,) = (block for block in blocks if name in block.splitlines()[1])
    text = text.replace("/usr/bin/python3 -IS /usr/local/sbin/fabtui-gate.pyz", str(folder / "planted"))
    text = text.replace("/etc/fabtui-good.json", str(folder / "good.json"))
    # slurmd gives a health check the name of the node alone, and this is not the place of slurm.conf of a site.
    text = text.replace("#!/bin/sh\n", f"#!/bin/sh\nexport SLURM_CONF={folder}/slurm.conf\n")
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def prepare(cluster: SlurmCluster) -> dict[str, str]:
    """Write what the faults need, and return the reason that each node must have."""
    folder, wanted = cluster.folder, {}
    values = {"folder": folder, "python": sys.executable, "fuse": FUSE}
    for place, text in {
        "pci/0000:3b:00.0/vendor": "0x10de",
        "pci/0000:3b:00.0/class": "0x030200",
        "class/infiniband/mlx5_0/ports/1/state": "1: DOWN",
        "class/infiniband/mlx5_0/ports/1/phys_state": "2: Polling",
        "class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        "class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
        "class/net/none": "",
        "xid": "6,99,1000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n",
    }.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "class/net/none").unlink()
    (folder / "plant").mkdir()
    for name, (text, reason) in zip(cluster.names, FAULTS.values(), strict=False):
        (folder / "plant" / name).write_text(text.format(**values) + "\n")
        wanted[name] = reason
    for name in cluster.names[len(FAULTS) :]:
        (folder / "plant" / name).write_text("")
    return wanted


@pytest.fixture(params=["Prolog", "HealthCheckProgram"])
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[str, SlurmCluster]]:
    folder = short_folder("gate")
    program = "fabtui-prolog" if request.param == "Prolog" else "fabtui-health"
    more = f"{request.param}={folder}/{program}\n"
    more += "PrologFlags=Alloc" if request.param == "Prolog" else "HealthCheckInterval=15\nHealthCheckNodeState=ANY"
    subprocess.run([sys.executable, "-m", "fabtui", "gate", "--build", str(folder / "gate.pyz")], check=True)
    (folder / "planted").write_text(PLANTED.format(folder=folder, python=sys.executable))
    (folder / "planted").chmod(0o755)
    recipe(program, folder)
    with SlurmCluster(folder, nodes=(len(FAULTS) + HEALTHY) // 2, each=2, more=more) as started:
        # The baseline of a good node: its own network.
        argv = [sys.executable, "-IS", str(folder / "gate.pyz"), "--json"]
        good = json.loads(started.network.on(started.network.names[0], *argv))
        (folder / "good.json").write_text(json.dumps(good))
        yield request.param, started
    shutil.rmtree(folder, ignore_errors=True)


def test_the_recipe_drains_the_planted_nodes_and_no_other(cluster: tuple[str, SlurmCluster]) -> None:
    kind, slurm = cluster
    wanted = prepare(slurm)
    jobs = {}
    if kind == "Prolog":
        jobs = {name: slurm.batch("-N1", "-w", name, script="true") for name in slurm.names}

    def reasons() -> dict[str, str]:
        lines = slurm.run("sinfo", "--noheader", "--Node", "--format=%N|%T|%E").stdout.splitlines()
        rows = [line.split("|", 2) for line in lines]
        return {name: reason for name, state, reason in rows if "drain" in state}

    slurm._until(lambda: len(reasons()) >= len(wanted), "the drained nodes")
    if jobs:
        healthy = slurm.names[len(FAULTS) :]
        slurm._until(lambda: all(slurm.state(jobs[name]) == "COMPLETED" for name in healthy), "the healthy jobs")
    found = reasons()
    assert found.keys() == wanted.keys(), found
    for name, part in wanted.items():
        assert found[name].startswith("fabtui: "), found
        assert part in found[name], (name, found[name])
    if kind == "HealthCheckProgram":
        (slurm.folder / "plant" / slurm.names[0]).write_text("")
        slurm._until(lambda: slurm.names[0] not in reasons(), "the node that is well again")
