import os
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node import protocol, registry
from fabtui_node.probes import inventory
from fabtui_node.probes.nvidia import nvml, nvml_inventory
from fabtui_node.system import drivers, interpreters, limits, rdma_devices

from .places import Tree

SWITCHES = ["pci0000:15/0000:15:01.0", "pci0000:97/0000:97:01.0"]


class Library:
    """Two GPUs; the second answers only what every GPU must, and only as bytes."""

    def __init__(self, broken: tuple[str, ...] = ()) -> None:
        self.broken = broken

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name in self.broken:
            raise AttributeError(name)
        return getattr(self, "_" + name[len("nvml") :], self._not_supported)

    @staticmethod
    def _not_supported(*args: Any) -> None:
        raise RuntimeError("Not Supported")

    _DeviceGetCount = staticmethod(lambda: 2)
    _DeviceGetHandleByIndex = staticmethod(lambda index: f"handle{index}")
    _DeviceGetUUID = staticmethod(lambda handle: b"GPU-b" if handle == "handle1" else "GPU-a")
    _DeviceGetName = staticmethod(lambda handle: b"NVIDIA X" if handle == "handle1" else "NVIDIA H200")
    _SystemGetDriverVersion = staticmethod(lambda: "580.159.04")
    _SystemGetCudaDriverVersion = staticmethod(lambda: 13000)
    _Shutdown = staticmethod(lambda: None)

    def _DeviceGetPciInfo(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(busId="00000000:18:00.0" if handle == "handle0" else b"00000000:9A:00.0")

    def _DeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        if handle == "handle1":
            raise RuntimeError("Not Supported")
        return SimpleNamespace(total=143 << 30, used=1 << 20)

    def _DeviceGetMigMode(self, handle: str) -> Any:  # noqa: N802
        return [0, 0] if handle == "handle0" else self._not_supported()

    def _DeviceGetComputeRunningProcesses(self, handle: str) -> Any:  # noqa: N802
        return [
            SimpleNamespace(pid=os.getpid(), usedGpuMemory=5 << 30),
            SimpleNamespace(pid=1 << 22, usedGpuMemory=None),
        ]

    def _DeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        return "instance" if uuid == "MIG-1" else self._not_supported()

    def _DeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> Any:  # noqa: N802
        return "handle1" if handle == "instance" else self._not_supported()

    _DeviceGetIndex = staticmethod(lambda handle: int(handle[-1]))


@pytest.fixture
def host(tree: Tree) -> Tree:
    """Return a host with two switches, a GPU and a NIC below each."""
    for index, (switch, gpu, nic) in enumerate(zip(SWITCHES, ("18", "9a"), ("19", "9b"), strict=True)):
        low = f"{switch}/0000:{index + 4}0:00.0"
        tree.pci(
            f"{low}/0000:{index + 5}0:00.0/0000:{gpu}:00.0", vendor="0x10de", **{"class": "0x030200"}, numa_node=index
        )
        card = tree.pci(f"{low}/0000:{index + 5}1:00.0/0000:{nic}:00.0", vendor="0x15b3", numa_node=index)
        tree.ca(f"mlx5_{1 - index}", card, netdev=f"ib{1 - index}")
        tree.nic(f"ib{1 - index}", card, type=32, speed=400000)
    return tree


def test_gpus(host: Tree) -> None:
    found = nvml_inventory.read(Library(), None, str(host.root))
    assert (found["driver"], found["cuda"]) == ("580.159.04", "13.0")
    first, second = found["gpus"]
    assert (first["index"], first["nvml_index"], first["name"], first["uuid"]) == (0, 0, "NVIDIA H200", "GPU-a")
    assert (first["bus"], first["numa"], first["mig"]) == ("0000:18:00.0", 0, False)
    assert (first["memory"], first["memory_used"]) == (143 << 30, 1 << 20)
    assert first["processes"][0]["memory"] == 5 << 30
    assert (second["name"], second["uuid"], second["bus"], second["numa"]) == ("NVIDIA X", "GPU-b", "0000:9a:00.0", 1)
    assert (second["mig"], second["memory"], second["error"]) == (None, None, None)


def test_gpus_that_are_not_visible_are_not_listed(host: Tree) -> None:
    (only,) = nvml_inventory.read(Library(), "1", str(host.root))["gpus"]
    assert (only["index"], only["nvml_index"], only["uuid"]) == (0, 1, "GPU-b")
    assert nvml_inventory.read(Library(), "", str(host.root))["gpus"] == []


def test_a_mig_instance(host: Tree) -> None:
    known, unknown = nvml_inventory.read(Library(), "MIG-1,MIG-2", str(host.root))["gpus"]
    assert (known["uuid"], known["nvml_index"], known["mig"], known["bus"]) == ("MIG-1", 1, True, "0000:9a:00.0")
    assert unknown["error"] == "the driver does not know the MIG instance MIG-2"


def test_one_gpu_that_gives_no_handle_leaves_the_others(host: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(index: int) -> str:
        if index:
            raise RuntimeError("GPU is lost")
        return "handle0"

    monkeypatch.setattr(Library, "_DeviceGetHandleByIndex", staticmethod(lost))
    good, bad = nvml_inventory.read(Library(), None, str(host.root))["gpus"]
    assert good["error"] is None
    assert bad["error"] == "NVML gives no handle for this GPU"


NAMES = [name for name in vars(Library) if name.startswith("_Device") or name.startswith("_System")]


@pytest.mark.parametrize("name", NAMES)
def test_any_call_may_fail(host: Tree, name: str) -> None:
    library = Library()
    setattr(library, name, library._not_supported)
    protocol.encode(nvml_inventory.read(library, None, str(host.root)))


def test_owner_of_a_process(tmp_path: Path) -> None:
    process = tmp_path / "77"
    process.mkdir()
    (process / "comm").write_text("python3\n")
    namespace = tmp_path / "self/ns"
    namespace.mkdir(parents=True)
    (namespace / "pid").symlink_to("pid:[4026531836]")
    assert nvml_inventory.owner(77, str(tmp_path))["name"] == "python3"
    assert nvml_inventory.owner(77, str(tmp_path))["user"]
    assert nvml_inventory.owner(78, str(tmp_path)) == {"name": None, "user": None}
    (namespace / "pid").unlink()
    (namespace / "pid").symlink_to("pid:[4026532000]")
    assert nvml_inventory.owner(77, str(tmp_path)) == {"name": None, "user": None}


def look(host: Tree, monkeypatch: pytest.MonkeyPatch, library: Any = None, **args: Any) -> dict[str, Any]:
    def open_library() -> Any:
        if library is None:
            raise nvml.Unavailable("NVML: Driver Not Loaded")
        return library

    monkeypatch.setattr(nvml, "open_library", open_library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    value = inventory.run(args, None, 30.0, str(host.root))
    protocol.encode(value)
    return value


def test_each_gpu_has_its_nic(host: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    value = look(host, monkeypatch, Library())
    assert [(gpu["nic"], gpu["nic_path"]) for gpu in value["gpus"]] == [("mlx5_1", "PIX"), ("mlx5_0", "PIX")]
    assert [(port["ca"], port["state"], port["rate"], port["netdev"]) for port in value["ib"]] == [
        ("mlx5_0", "Active", 400.0, "ib0"),
        ("mlx5_1", "Active", 400.0, "ib1"),
    ]


def test_gpus_without_a_driver_are_reported(host: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    value = look(host, monkeypatch)
    assert (value["gpus"], value["driver"], value["cuda"]) == ([], None, None)
    assert value["nvml_error"] == "NVML: Driver Not Loaded"
    assert value["pci_gpus"] == ["0000:18:00.0", "0000:9a:00.0"]


def test_the_lab_names_the_node(host: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABTUI_LAB_NODE", "n001")
    monkeypatch.setenv("FABTUI_LAB_ADDRESS", "127.0.60.2")
    monkeypatch.setenv("FABTUI_LAB_ENDPOINTS", "4")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    value = look(host, monkeypatch)
    assert (value["host"], value["endpoints"]) == ("n001", 4)
    assert [entry["address"] for entry in value["data_addresses"]] == ["127.0.60.2"]
    assert value["env"]["NCCL_DEBUG"] == "INFO"
    assert "SECRET_TOKEN" not in value["env"]


def test_this_machine() -> None:
    start = time.monotonic()
    value = registry.PROBES["inventory"].run({"pythons": [sys.executable, "/no/such/python"]}, lambda part: None, 30.0)
    assert time.monotonic() - start < 30
    protocol.encode(value)
    assert value["host"] == os.environ.get("FABTUI_LAB_NODE", socket.gethostname())
    assert value["cpus"] >= 1
    assert value["memory"] > 0
    assert "lo" in [nic["name"] for nic in value["nics"]]
    assert set(value["limits"]) == {"memlock", "nofile", "as", "cpu", "nproc"}
    assert value["limits"]["nofile"]["soft"] != 0
    mine, missing = value["pythons"][:2]
    assert (mine["path"], mine["version"]) == (sys.executable, ".".join(map(str, sys.version_info[:3])))
    assert missing["error"] == "no python on this node"
    assert all("127." not in entry["address"] for entry in value["data_addresses"])


def test_torch_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    wheel = site / "nvidia/nccl/lib"
    wheel.mkdir(parents=True)
    (wheel / "libnccl.so.2").touch()
    (site / "nvidia_nccl_cu12-2.27.5.dist-info").mkdir()
    torch = site / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise SystemExit('imported')")
    (torch / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    found = interpreters.inspect(sys.executable, 30.0)
    assert (found["torch"], found["torch_cuda"], found["error"]) == ("2.9.1+cu128", "12.8", None)
    assert (found["nccl"], found["nccl_version"]) == (str(wheel / "libnccl.so.2"), "2.27.5")
    assert found["site"] == str(site)


def test_a_python_that_is_none(tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\necho something else\n")
    fake.chmod(0o755)
    assert interpreters.inspect(str(fake), 10.0)["error"] == "it printed nothing of use"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    assert interpreters.inspect(str(fake), 0.3)["error"] == "python3 did not end in time"


def test_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("venv", "conda"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin/python3").symlink_to(sys.executable)
    environ = {"VIRTUAL_ENV": str(tmp_path / "venv"), "CONDA_PREFIX": str(tmp_path / "conda")}
    wanted = str(tmp_path / "conda/bin/python3")
    paths = interpreters.candidates([wanted, "/no/such"], environ)
    assert paths[:3] == [wanted, "/no/such", str(tmp_path / "venv/bin/python3")]
    assert paths.count(wanted) == 1


def test_libraries(tmp_path: Path) -> None:
    text = (
        "10 libs found in cache\n"
        "\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnccl.so.2\n"
        "\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13\n"
        "\tlibcurl.so.4 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcurl.so.4\n"
        "\tlibcudadebugger.so.1 (libc6,x86-64) => /usr/lib/libcudadebugger.so.1\n"
    )
    assert drivers.parse_ldconfig(text) == [
        "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        "/usr/local/cuda/lib64/libcudart.so.13",
    ]
    (tmp_path / "libnccl.so.2.28.3").touch()
    (tmp_path / "libnccl.so.2").symlink_to("libnccl.so.2.28.3")
    assert drivers.version_of(str(tmp_path / "libnccl.so.2")) == "2.28.3"
    assert drivers.version_of("/opt/libnccl.so.2") is None
    own = [path for path in drivers.find({"LD_LIBRARY_PATH": f":{tmp_path}"}, 10.0) if path.startswith(str(tmp_path))]
    assert own == [str(tmp_path / "libnccl.so.2")]


def test_small_files() -> None:
    assert inventory.parse_os_release('NAME="X"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n') == (
        "Debian GNU/Linux 12 (bookworm)"
    )
    assert inventory.parse_os_release("NAME=Plain\n") == "Plain"
    assert inventory.parse_os_release("") is None
    assert inventory.parse_meminfo("MemTotal:       24684092 kB\nMemFree: 1 kB\n") == 24684092 * 1024
    assert inventory.parse_meminfo("") is None


def test_unlimited_is_not_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda which: (65536, resource.RLIM_INFINITY))
    assert limits.read()["memlock"] == {"soft": 65536, "hard": -1}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"pci_gpus": ["a", "b"], "gpus": [{"bus": "a"}, {"bus": "b"}]}, None),
        ({"pci_gpus": ["a", "b"], "gpus": [{"bus": "a"}]}, "the driver shows 1 of 2 NVIDIA GPUs, not b"),
        (
            {"pci_gpus": ["a", "b"], "gpus": [], "nvml_error": "Driver Not Loaded"},
            "the driver shows 0 of 2 NVIDIA GPUs: Driver Not Loaded",
        ),
        ({"pci_gpus": ["a", "b"], "gpus": [{"bus": "a"}], "env": {"CUDA_VISIBLE_DEVICES": "0"}}, None),
        ({"pci_gpus": ["a", "b"], "gpus": [], "env": {"CUDA_VISIBLE_DEVICES": ""}}, None),
        ({"pci_gpus": ["a"], "gpus": [{"bus": None}]}, None),
        ({"pci_gpus": None, "gpus": "x"}, None),
        ({}, None),
    ],
)
def test_gpus_that_the_driver_does_not_show(value: dict[str, Any], text: str | None) -> None:
    assert [one["text"] for one in inventory.judge(value)] == ([text] if text else [])


def efa(tree: Tree, name: str, device: str) -> None:
    """Make an Elastic Fabric Adapter: its driver names no type, and its link layer is unspecified."""
    tree.ca(name, tree.pci(device), None, link_layer="Unknown", rate="100 Gb/sec (4X EDR)")
    tree.files(f"class/infiniband/{name}", sys_image_guid="0000:0000:0000:0000", node_guid="0000:0000:0000:0000")
    (tree.root / f"class/infiniband/{name}/hca_type").unlink()
    tree.link(f"devices/{device}/driver", "bus/pci/drivers/efa")


def test_adapters_of_aws_have_a_type_and_all_that_are_near_are_listed(tree: Tree) -> None:
    for at in range(4):
        efa(tree, f"rdmap{at}s0", f"pci0000:00/0000:00:01.0/0000:0{at + 1}:00.0")
    tree.pci("pci0000:00/0000:00:01.0/0000:09:00.0")
    devices = rdma_devices.devices(str(tree.root))
    found = inventory.ports(devices)
    assert [(one["type"], one["link_layer"], one["rate"], one["state"]) for one in found] == [
        ("EFA", "Unknown", 100.0, "Active")
    ] * 4
    assert all("connector" not in one for one in found)
    gpus: list[dict[str, Any]] = [{"index": 0, "bus": "0000:09:00.0", "numa": None}]
    inventory.place_nics(gpus, [], devices, str(tree.root))
    assert gpus[0]["near_nics"] == [f"rdmap{at}s0" for at in range(4)]
    assert gpus[0]["nic"] == "rdmap0s0"


def spark(tree: Tree, name: str, device: str, place: str, state: str = "4: ACTIVE") -> None:
    """Make a function of the adapter of a DGX Spark; two functions lead to each of its two connectors."""
    netdev = f"en{name.removeprefix('roce')}n{place}"
    link = {"current_link_speed": "32.0 GT/s PCIe", "current_link_width": 4}
    tree.ca(name, tree.pci(device, **link), netdev, link_layer="Ethernet", rate="200 Gb/sec (4X HDR)", state=state)
    tree.files(f"class/infiniband/{name}", sys_image_guid="fc4c:ea03:00f9:4230")
    tree.files(f"devices/{device}/net/{netdev}", phys_port_name=place)


def test_two_functions_of_one_connector_are_named(tree: Tree) -> None:
    for domain, prefix in (("0000", "p1"), ("0002", "P2p1")):
        for function in range(2):
            device = f"pci{domain}:00/{domain}:00:00.0/{domain}:01:00.{function}"
            spark(tree, f"roce{prefix}s0f{function}", device, f"p{function}")
    found = {one["ca"]: one.get("connector") for one in inventory.ports(rdma_devices.devices(str(tree.root)))}
    guid = "0xfc4cea0300f94230"
    assert found == {
        "rocep1s0f0": f"{guid} p0/1",
        "roceP2p1s0f0": f"{guid} p0/1",
        "rocep1s0f1": f"{guid} p1/1",
        "roceP2p1s0f1": f"{guid} p1/1",
    }
    assert {one["pcie_rate"] for one in inventory.ports(rdma_devices.devices(str(tree.root)))} == {126.03}


def test_two_connectors_of_one_adapter_and_virtual_functions_share_nothing(tree: Tree) -> None:
    for function in range(2):
        spark(tree, f"rocep1s0f{function}", f"pci0000:00/0000:01:00.{function}", f"p{function}")
    tree.ca("mlx5_9", tree.pci("pci0000:00/0000:02:00.0"), None, link_layer="Ethernet")
    tree.files("class/infiniband/mlx5_9", sys_image_guid="fc4c:ea03:00f9:4230")
    tree.link("devices/pci0000:00/0000:02:00.0/physfn", "devices/pci0000:00/0000:01:00.0")
    assert all("connector" not in one for one in inventory.ports(rdma_devices.devices(str(tree.root))))
