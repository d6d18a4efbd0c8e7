"""Folders of recorded outputs, and synthetic folders like the kernel's."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "tests/samples"
REAL = Path(os.environ.get("FABTUI_REAL_SAMPLES") or ROOT / "../shared/samples/real")


def sample(name: str) -> str:
    return (SAMPLES / name).read_text()


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root

    def files(self, folder: str, **values: object) -> None:
        """Write one small file for each name and value; ``__`` in a name is a folder."""
        for name, value in values.items():
            path = self.root / folder / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")

    def link(self, name: str, target: str) -> None:
        """Make ``name`` a link to ``target``, a folder which is made if need be."""
        path, end = self.root / name, self.root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        end.mkdir(parents=True, exist_ok=True)
        path.symlink_to(end)

    def pci(self, path: str, **values: object) -> str:
        """Make a PCI device at a path below ``devices`` and return that path."""
        folder = f"devices/{path}"
        self.files(folder, **{"vendor": "0x0000", **values})
        self.link(f"bus/pci/devices/{path.rpartition('/')[2]}", folder)
        return folder

    def nic(self, name: str, device: str | None = None, **values: object) -> None:
        start = {"address": "02:00:00:00:00:01", "operstate": "up", "mtu": 1500, "type": 1}
        self.files(f"class/net/{name}", **{**start, **values})
        if device:
            self.link(f"class/net/{name}/device", device)

    def ca(self, name: str, device: str | None = None, netdev: str | None = None, **values: object) -> None:
        """Make an RDMA device with one port; values are those of the port."""
        folder = f"class/infiniband/{name}"
        self.files(folder, hca_type="MT4129", fw_ver="28.39.1002", hw_rev="0", node_guid="a088:c203:00e3:12f2")
        start: dict[str, object] = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "lid": "0x33bf",
            "sm_lid": "0x1",
            "link_layer": "InfiniBand",
            "cap_mask": "0xa651ec48",
            "gids__0": "fe80:0000:0000:0000:a088:c203:00e3:12f2",
            "gids__1": "0000:0000:0000:0000:0000:0000:0000:0000",
        }
        self.files(f"{folder}/ports/1", **{**start, **values})
        if netdev:
            self.files(f"{folder}/ports/1/gid_attrs/ndevs", **{"0": netdev})
        if device:
            self.link(f"{folder}/device", device)
