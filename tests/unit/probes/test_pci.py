from fabtui_node.system import pci
from fabtui_node.system.pci import PciDevice

SWITCH = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0"
OTHER = "/sys/devices/pci0000:15/0000:15:03.0/0000:30:00.0"
FAR = "/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0"


def test_chain() -> None:
    assert pci.chain(f"{SWITCH}/0000:17:00.0/infiniband/mlx5_0") == [
        "pci0000:15",
        "0000:15:01.0",
        "0000:16:00.0",
        "0000:17:00.0",
    ]
    assert pci.chain("/sys/devices/virtual/net/lo") == []
    assert pci.chain(None) == []


def test_address() -> None:
    assert pci.address("/sys/devices/pci0000:00/0000:00:03.0/virtio2") == "0000:00:03.0"
    assert pci.address("/sys/devices/virtual/net/lo") is None


def test_distance() -> None:
    gpu = PciDevice(f"{SWITCH}/0000:17:00.0/0000:18:00.0", 0)
    assert pci.distance(gpu, PciDevice(f"{SWITCH}/0000:17:01.0/0000:19:00.0", 0)) == "PIX"
    assert pci.distance(gpu, PciDevice(f"{SWITCH}/0000:17:02.0/0000:20:00.0/0000:21:00.0/0000:22:00.0", 0)) == "PXB"
    assert pci.distance(gpu, PciDevice(f"{OTHER}/0000:31:00.0", 0)) == "PHB"
    assert pci.distance(gpu, PciDevice(f"{FAR}/0000:99:00.0", 0)) == "NODE"
    assert pci.distance(gpu, PciDevice(f"{FAR}/0000:99:00.0", 1)) == "SYS"
    assert pci.distance(gpu, PciDevice(f"{FAR}/0000:99:00.0", None)) == "SYS"
    assert pci.distance(gpu, PciDevice(None)) is None


def test_each_gpu_gets_the_nic_of_its_switch() -> None:
    gpus = {"0": PciDevice(f"{SWITCH}/0000:17:00.0/0000:18:00.0"), "1": PciDevice(f"{FAR}/0000:99:00.0/0000:9a:00.0")}
    nics = {
        "mlx5_1": PciDevice(f"{SWITCH}/0000:17:01.0/0000:19:00.0"),
        "mlx5_0": PciDevice(f"{FAR}/0000:99:01.0/0000:9b:00.0"),
    }
    assert pci.closest(gpus, nics) == {"0": ("mlx5_1", "PIX"), "1": ("mlx5_0", "PIX")}


def test_two_gpus_and_two_nics_behind_one_switch() -> None:
    gpus = {str(n): PciDevice(f"{SWITCH}/0000:17:0{n}.0/0000:2{n}:00.0") for n in range(2)}
    nics = {f"mlx5_{n}": PciDevice(f"{SWITCH}/0000:18:0{n}.0/0000:3{n}:00.0") for n in range(2)}
    assert {gpu: nic for gpu, (nic, _) in pci.closest(gpus, nics).items()} == {"0": "mlx5_0", "1": "mlx5_1"}


def test_an_equally_near_nic_that_is_up_or_faster_is_preferred() -> None:
    gpus = {"0": PciDevice(f"{SWITCH}/0000:17:00.0/0000:18:00.0")}
    nics = {
        "mlx5_0": PciDevice(f"{SWITCH}/0000:17:01.0/0000:19:00.0", None, (0.0, 400.0)),
        "mlx5_1": PciDevice(f"{SWITCH}/0000:17:02.0/0000:1a:00.0", None, (1.0, 100.0)),
        "mlx5_2": PciDevice(f"{SWITCH}/0000:17:03.0/0000:1b:00.0", None, (1.0, 400.0)),
    }
    assert pci.closest(gpus, nics) == {"0": ("mlx5_2", "PIX")}


def test_a_nearer_nic_is_preferred_even_when_it_is_down() -> None:
    gpus = {"0": PciDevice(f"{SWITCH}/0000:17:00.0/0000:18:00.0")}
    nics = {
        "mlx5_0": PciDevice(f"{SWITCH}/0000:17:01.0/0000:19:00.0", None, (0.0, 0.0)),
        "mlx5_1": PciDevice(f"{OTHER}/0000:31:00.0", None, (1.0, 400.0)),
    }
    assert pci.closest(gpus, nics) == {"0": ("mlx5_0", "PIX")}


def test_nothing_known() -> None:
    assert pci.closest({"0": PciDevice(None)}, {"mlx5_0": PciDevice(FAR)}) == {"0": (None, None)}
    assert pci.closest({"0": PciDevice(SWITCH)}, {}) == {"0": (None, None)}
