"""The formats of GPU tools in the forms that other drivers, other GPUs and broken ones print."""

from __future__ import annotations

import pytest

from fabtui_node.parsers.nvidia import query_csv, smi_query, smi_table, topo, values

from .places import sample
from .test_gpu_formats import GPUS, read


def test_what_is_not_there_is_not_known() -> None:
    reading = smi_query.parse_query(sample("h200x8/fabric.txt"))
    assert reading.values["gpus"] == []
    assert reading.warnings == ["no GPU in this text"]
    assert reading.unknown == ["Failed to parse --display/-d flags"]


HANDLE = "Unable to determine the device handle for "
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161"
OLD_TABLE = """\
+------------------------------------------------------+
| NVIDIA-SMI 352.63     Driver Version: 352.63         |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla K80           Off  | 0000:06:00.0     Off |                    0 |
| N/A   44C    P0    58W / 149W |     22MiB / 11519MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
|   1  ERR!                On   | 0000:0F:00.0     Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! | GPU is lost          | ERR!            ERR! |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID  Type  Process name                               Usage      |
|=============================================================================|
|    0      1234    C   /usr/bin/python -m train                        55MiB |
+-----------------------------------------------------------------------------+
"""


def test_the_table_of_an_old_driver_and_a_dead_gpu() -> None:
    reading = read("nvidia-smi", OLD_TABLE)
    healthy, dead = reading.values["gpus"]
    assert (healthy["name"], healthy["power"], healthy["memory_used"], healthy["mig"]) == ("Tesla K80", 58, 22, None)
    assert (dead["index"], dead["bus"], dead["name"], dead["perf"]) == (1, "0000:0F:00.0", None, None)
    assert dead["errors"]["memory"] == "GPU is lost"
    assert dead["errors"]["power"] == "ERR!"
    assert reading.values["any_err"] is True
    (process,) = reading.values["processes"]
    assert process == {
        "gpu": 0,
        "gi": None,
        "ci": None,
        "pid": 1234,
        "type": "C",
        "name": "/usr/bin/python -m train",
        "memory": 55,
    }


MIG_TABLE = """\
| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
| N/A   35C    P8              4W /  N/A  | Not Supported          |      0%      Default |
|                                         |                        |             Enabled* |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  0    7   0   0  |              12MiB /  9984MiB    | 14      0 |  1   0    0    0    0 |
|                  |               0MiB / 16383MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0    7    0            12345      C   python                                1234MiB |
|    0   N/A  N/A            2222    C+G   [Insufficient Permissions]                N/A |
+-----------------------------------------------------------------------------------------+
"""


def test_the_table_of_a_new_driver_with_instances() -> None:
    reading = read("nvidia-smi", MIG_TABLE)
    values = reading.values
    assert (values["driver"], values["cuda"]) == ("610.43.02", "13.3")
    (gpu,) = values["gpus"]
    assert (gpu["power"], gpu["power_limit"], gpu["memory_total"], gpu["mig"]) == (4, None, None, "Enabled*")
    assert (gpu["errors"], values["any_err"]) == ({}, False)
    assert values["instances"] == [
        {"gpu": 0, "gi": 7, "ci": 0, "device": 0, "memory_used": 12, "memory_total": 9984},
    ]
    assert [(process["pid"], process["gi"], process["memory"]) for process in values["processes"]] == [
        (12345, 7, 1234),
        (2222, None, None),
    ]


def test_mig_instances_in_the_list() -> None:
    text = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-aa)\n"
        "  MIG 1g.5gb Device 1: (UUID: MIG-GPU-1/1/0)\n"
    )
    (gpu,) = read("nvidia-smi-L", text).values["gpus"]
    assert gpu["mig"] == [
        {"profile": "3g.20gb", "device": 0, "uuid": "MIG-aa"},
        {"profile": "1g.5gb", "device": 1, "uuid": "MIG-GPU-1/1/0"},
    ]


@pytest.mark.parametrize(
    ("text", "kind", "bus", "number"),
    [
        (HANDLE + "GPU0000:3B:00.0: GPU is lost", "gpu_lost", "0000:3B:00.0", None),
        (HANDLE + "GPU2: Unknown Error", "device_handle", None, "2"),
        (
            HANDLE + "GPU3: 0000:5E:00.0: Not Found",
            "device_handle",
            "0000:5E:00.0",
            "3",
        ),
        (
            HANDLE + "gpu 0000:03:00.0: Unknown Error",
            "device_handle",
            "0000:03:00.0",
            None,
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161",
            "version",
            None,
            None,
        ),
        ("Failed to initialize NVML: Driver Not Loaded", "version", None, None),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "library", None, None),
        ("No devices were found", "no_devices", None, None),
        ("NVML: GPU requires reset", "requires_reset", None, None),
    ],
)
def test_the_wordings_of_what_is_broken(text: str, kind: str, bus: str | None, number: str | None) -> None:
    (error,) = values.parse_errors(text)
    assert (error["kind"], error["bus"], error["index"]) == (kind, bus, number)
    reading = smi_table.parse_nvidia_smi(text)
    assert reading.values["any_err"] is True
    assert reading.warnings


def test_a_dead_gpu_in_csv() -> None:
    text = (
        "index, pci.bus_id, power.draw [W], clocks_event_reasons.active, pcie.link.width.current\n"
        "0, 00000000:06:00.0, 78.06 W, 0x0000000000000004, 16\n"
        "1, 00000000:07:00.0, [GPU requires reset], [Unknown Error], [N/A]\n"
    )
    reading = read("nvidia-smi-query", text)
    first, second = reading.values["rows"]
    assert first["clocks_event_reasons.active"] == ["sw_power_cap"]
    assert (second["power.draw"], second["pcie.link.width.current"]) == (None, None)
    assert second["errors"] == {"power.draw": "GPU requires reset", "clocks_event_reasons.active": "Unknown Error"}
    assert len(reading.warnings) == 2


def test_csv_without_a_header() -> None:
    row = "0, NVIDIA H200, 16\n"
    assert query_csv.parse_csv(row).values["rows"] == []
    assert query_csv.parse_csv(row).unknown == [row.strip()]
    asked = "$ nvidia-smi --query-gpu=index,name,pcie.link.width.current --format=csv,noheader\n"
    (known,) = read("nvidia-smi-query", asked + row).values["rows"]
    assert known == {"index": 0, "name": "NVIDIA H200", "pcie.link.width.current": 16}


def test_pending_rows() -> None:
    text = "gpu_bus_id, remapped_rows.pending, remapped_rows.failure\n00000000:06:00.0, Yes, Yes\n"
    warnings = read("nvidia-smi-remapped-rows", text).warnings
    assert ["failed" in warnings[0], "reset" in warnings[1]] == [True, True]


OLD_QUERY = """\
==============NVSMI LOG==============

Timestamp                           : Mon Jan  7 10:00:00 2019
Driver Version                      : 384.111

Attached GPUs                       : 2
GPU 00000000:04:00.0
    Product Name                    : Tesla V100-SXM2-16GB
    PCI
        Bus Id                      : 00000000:04:00.0
        GPU Link Info
            PCIe Generation
                Max                 : 3
                Current             : 1
            Link Width
                Max                 : 16x
                Current             : 8x
    Clocks Throttle Reasons
        Idle                        : Not Active
        HW Slowdown                 : Active
            HW Thermal Slowdown     : Not Active
            HW Power Brake Slowdown : Active
    FB Memory Usage
        Total                       : 16152 MiB
        Used                        : 5 MiB
    Ecc Mode
        Current                     : Enabled
        Pending                     : Disabled
    ECC Errors
        Volatile
            Single Bit
                Device Memory       : 3
                Total               : 3
            Double Bit
                Device Memory       : 1
                Total               : 1
    Retired Pages
        Single Bit ECC              : 0
        Double Bit ECC              : 2
        Pending                     : Yes
    Power Readings
        Power Draw                  : 40.12 W
        Power Limit                 : 300.00 W
    Processes
        Process ID                  : 77
            Type                    : C
            Name                    : python
            Used GPU Memory         : 500 MiB
        Process ID                  : 78
            Type                    : G
            Name                    : /usr/bin/X
            Used GPU Memory         : 4 MiB

"""


def test_everything_by_an_old_driver() -> None:
    reading = read("nvidia-smi-q", OLD_QUERY)
    (gpu,) = reading.values["gpus"]
    assert reading.warnings == ["it counts 2 GPUs and shows 1"]
    assert [gpu["pcie"][key] for key in ("generation", "generation_max", "width", "width_max")] == [1, 3, 8, 16]
    active = [name for name, on in gpu["clocks_event_reasons"].items() if on]
    assert active == ["hw_slowdown", "hw_power_brake_slowdown"]
    assert (gpu["ecc_errors"]["volatile"]["single_bit"], gpu["ecc_errors"]["volatile"]["double_bit"]) == (3, 1)
    assert gpu["ecc"] == {"current": "Enabled", "pending": "Disabled"}
    assert gpu["retired_pending"] is True
    assert gpu["power"]["power_draw"] == 40.12
    assert gpu["fabric"] is None
    assert [(process["pid"], process["memory"]) for process in gpu["processes"]] == [(77, 500), (78, 4)]


BLACKWELL = """\
GPU 00000008:06:00.0
{link} 0: Tx packets: 12345
{link} 0: Tx bytes: 4096 KB
{link} 0: Malformed packet Errors: 0
{link} 0: Buffer overrun Errors: 0
{link} 0: Rx Errors: 2
{link} 0: Link recovery failed events: 0
{link} 0: Effective Errors: 0
{link} 0: Effective BER: 15e-255
{link} 0: Symbol BER: 1.5e-11
{link} 0: FEC Errors - 0: 36140749276
{link} 0: FEC Errors - 15: 0
{link} 0: Raw BER Lane 0: 2061
""".replace("{link}", "\t Link")


def test_the_counters_of_blackwell() -> None:
    reading = read("nvidia-smi-nvlink-e", BLACKWELL)
    (gpu,) = reading.values["gpus"]
    assert (gpu["index"], gpu["bus"]) == (None, "00000008:06:00.0")
    (link,) = gpu["links"]
    assert link["fec"] == {"0": 36140749276, "15": 0}
    assert link["rates"] == {"effective_ber": 15e-255, "symbol_ber": 1.5e-11}
    assert link["counters"]["malformed_packet_errors"] == 0
    # Neither traffic nor codewords without an error nor raw bit errors are errors.
    assert reading.warnings == ["GPU None link 0: rx_errors 2"]


def test_no_nvlink_in_words() -> None:
    text = "GPU 0: NVIDIA RTX A4000 (UUID: GPU-1)\nDevice does not have or support Nvlink\n"
    (gpu,) = read("nvidia-smi-nvlink-s", text).values["gpus"]
    assert (gpu["links"], gpu["all_inactive"]) == ([], False)
    assert "does not have" in gpu["message"]


def test_topology_with_device_names_and_one_gpu() -> None:
    text = (
        "\tGPU0\tGPU1\tmlx5_0\tmlx5_bond_0\tCPU Affinity\n"
        "GPU0\t X \tPIX\tSOC\tNODE\t0-13\nGPU1\tPIX\t X \tSOC\tSYS\t0-13\n"
        "mlx5_0\tSOC\tSOC\t X \tPIX\t\nmlx5_bond_0\tNODE\tSYS\tPIX\t X\n"
    )
    values = read("nvidia-smi-topo-m", text).values
    assert values["nics"] == {"mlx5_0": "mlx5_0", "mlx5_bond_0": "mlx5_bond_0"}
    assert values["complete"] is True
    one = "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tSYS\t\t0\t\tN/A\nNIC0\tSYS\t X\n"
    values = read("nvidia-smi-topo-m", one + "\nNIC Legend:\n\n  NIC0: mlx5_3\n").values
    assert values["affinity"]["GPU0"] == {"cpu": None, "numa": "0", "gpu_numa_id": None}
    assert values["nics"] == {"NIC0": "mlx5_3"}


def test_an_unknown_word_is_kept_and_reported() -> None:
    reading = topo.parse_topology("\tGPU0\tGPU1\nGPU0\t X \tC2C\nGPU1\tC2C\t X\n")
    assert reading.values["cells"] == [["X", "C2C"], ["C2C", "X"]]
    assert reading.unknown == ["GPU0: C2C", "GPU1: C2C"]


def test_a_part_of_a_table() -> None:
    text = (
        "|   5  NVIDIA H100 80GB HBM3          On  |   00000000:97:00.0 N/A |                  N/A |\n"
        "|ERR!   50C    P0            N/A  /  N/A  |       0MiB /  81559MiB |     N/A      Default |\n"
        "|                                         |                        |                 ERR! |\n"
        "|   6  NVIDIA Y100          On  | 00000000:2B:00.0 Off |                 ERR! |\n"
        "|ERR!  ERR! ERR!     ERR! / ERR!|      0MiB /  8194MiB |    ERR!      Default |\n"
        "|                               |                      |                 ERR! |\n"
        "|   7  NVIDIA H100 80GB HBM3          On  | 00000000:8B:00.0 Off |                   On |\n"
        "| N/A   48C    P0             138W/700W| N/A |     N/A      Default |\n"
        "|                                         |                      |              Enabled |\n"
    )
    reading = read("nvidia-smi", text)
    lost, other, instances = reading.values["gpus"]
    assert (lost["index"], lost["temperature"], lost["memory_total"], lost["power"]) == (5, 50, 81559, None)
    assert lost["errors"] == {"fan": "ERR!", "mig": "ERR!"}
    assert (other["index"], other["memory_total"], other["compute_mode"]) == (6, 8194, "Default")
    assert (instances["power"], instances["power_limit"], instances["mig"]) == (138, 700, "Enabled")


def test_no_instances() -> None:
    text = MIG_TABLE.replace("|  0    7   0   0  |              12MiB /  9984MiB    |", "|  No MIG devices found |")
    assert smi_table.parse_nvidia_smi(text).values["instances"] == []
    assert not any("No MIG" in line for line in smi_table.parse_nvidia_smi(text).unknown)


@pytest.mark.parametrize(
    ("lines", "action"),
    [
        ("GPU Recovery Action : None", "None"),
        ("GPU Recovery Action : Reset", "Reset"),
        ("GPU Reset Status\n        Reset Required : No\n        Drain and Reset Recommended : N/A", "None"),
        ("GPU Reset Status\n        Reset Required : Yes\n        Drain and Reset Recommended : No", "Reset"),
        ("GPU Reset Status\n        Reset Required : No\n        Drain and Reset Recommended : Yes", "Drain and Reset"),
        ("Product Name : X", None),
    ],
)
def test_what_a_gpu_needs_to_recover(lines: str, action: str | None) -> None:
    (gpu,) = read("nvidia-smi-q", f"GPU 00000000:01:00.0\n    {lines}\n").values["gpus"]
    assert gpu["recovery_action"] == action


def test_of_several_tables_the_last_one_is_used() -> None:
    text = sample("h200x8/smi.txt")
    reading = read("nvidia-smi", text + text.replace("78W", "99W"))
    assert [gpu["index"] for gpu in reading.values["gpus"]] == list(GPUS)
    assert reading.values["gpus"][0]["power"] == 99
    assert reading.warnings == ["2 tables, the last one is used"]
