"""Probe ``inventory``: GPUs, network interfaces, RDMA devices, Python interpreters, libraries, limits and tools."""

from __future__ import annotations

import os
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Mapping, Optional, Tuple

from fabtui_node.probes.judgement import judgement, objects, part
from fabtui_node.probes.network import interfaces as nics
from fabtui_node.probes.nvidia import nvml, nvml_inventory
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import drivers, limits, machine, pci, run_command, sysfs
from fabtui_node.system import interpreters as pythons

_TOOLS = ["ibstat", "nvidia-smi", "ping", "fping", "ip", "ethtool", "ibv_devinfo", "iblinkinfo", "perfquery", "rdma"]
_TOOLS += ["python3", "mlxlink", "dcgmi", "srun", "iperf3", "ib_write_bw", "ib_send_bw", "ib_read_lat"]
_ENV = re.compile(
    r"(NCCL_|RCCL_|UCX_|TORCH_NCCL_).*|(CUDA|HIP|ROCR)_VISIBLE_DEVICES|LD_LIBRARY_PATH|GLOO_SOCKET_IFNAME|SLURM_JOB_GPUS"
)
#: Variables that name files which are read; of plug-ins, those with a path.
_READ = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN")
#: Variables that name files which are written.
_WRITTEN = ("NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ENV_LIMIT = 4096
_MOST_NEAR = 16
#: Queueing disciplines that nobody has by default, with what they do to what is sent.
_SHAPING = {"tbf": "limits the rate", "netem": "delays, drops or reorders packets"}


def parse_os_release(text: str) -> Optional[str]:
    """Return the name of the system from ``/etc/os-release``."""
    values = dict(re.findall(r"^([A-Z_]+)=[\"']?([^\"'\n]{1,200})", text, re.MULTILINE))
    return values.get("PRETTY_NAME") or values.get("NAME")


def parse_meminfo(text: str) -> Optional[int]:
    """Return the bytes of memory from ``/proc/meminfo``."""
    match = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", text, re.MULTILINE | re.ASCII)
    return int(match.group(1)) * 1024 if match else None


def place_nics(
    found: List[Dict[str, Any]], interfaces: List[Dict[str, Any]], devices: List[Dict[str, Any]], root: str
) -> None:
    """Set ``nic`` and ``nic_path`` of each GPU: the nearest RDMA device, or network interface on nodes without RDMA.

    ``near_nics`` are all that are equally near.
    """
    near: Dict[str, pci.PciDevice] = {}
    for device in devices:
        active = any(port["state"] == "Active" for port in device["ports"])
        rate = max([port["rate"] or 0.0 for port in device["ports"]], default=0.0)
        near[device["ca"]] = pci.PciDevice(device["path"], device["numa"], (float(active), rate))
    if not near:
        for nic in interfaces:
            if nic["path"]:
                rank = (float(nic["state"] == "up"), float(nic["speed_mbps"] or 0))
                near[nic["name"]] = pci.PciDevice(nic["path"], nic["numa"], rank)
    places = {}
    for gpu in found:
        path = sysfs.real(root, "bus/pci/devices", gpu["bus"]) if gpu["bus"] else None
        places[str(gpu["index"])] = pci.PciDevice(path, gpu["numa"])
    chosen, equal = pci.closest(places, near), pci.nearest(places, near)
    for gpu in found:
        name = str(gpu["index"])
        gpu["nic"], gpu["nic_path"] = chosen[name]
        gpu["near_nics"] = equal[name][:_MOST_NEAR]


def ports(devices: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the ``ib`` list: one entry a port of ``rdma.devices``.

    ``connector`` names the connector of ports that share it: two PCI functions of one adapter, on a DGX Spark or where
    an adapter is connected to both sockets. ``pcie_rate`` is what the function of such a port passes (Gb/s).
    """
    of_device = ("ca", "type", "firmware", "numa", "bus")
    of_port = ("port", "state", "rate", "link_layer", "lid", "sm_lid", "netdev", "gids")
    rows: List[Dict[str, Any]] = []
    sharing: Dict[str, List[Tuple[Dict[str, Any], Optional[str]]]] = {}
    for device in devices:
        for port in device["ports"]:
            own = {name: port[name] for name in of_port}
            rows.append({**{name: device[name] for name in of_device}, **own, "phys_state": port["physical_state"]})
            # Adapters of AWS have no GUIDs: all of theirs are zero.
            if (device["system_guid"] or "").strip("0x") and port["place"]:
                connector = "%s %s/%d" % (device["system_guid"], port["place"], port["port"])
                sharing.setdefault(connector, []).append((rows[-1], device["path"]))
    for connector, ends in sharing.items():
        if len({end["ca"] for end, _ in ends}) > 1:
            for end, path in ends:
                end.update(connector=connector, pcie_rate=pci.link_rate(path))
    return rows


def env_paths(environ: Mapping[str, str]) -> Dict[str, Dict[str, str]]:
    """Return the paths that variables name: ``{"path", "state"}``, the folder of a file that is written.

    ``state``: ``there``, ``missing``, ``not writable``, or ``unknown`` if it may not be looked at.
    """
    paths = {}
    for name in (*_READ, *_WRITTEN):
        path = environ.get(name, "")[:_ENV_LIMIT]
        if path.startswith("/"):
            path = path if name in _READ else os.path.dirname(path)
            paths[name] = {"path": path, "state": _state(path, written=name in _WRITTEN)}
    return paths


def _state(path: str, written: bool) -> str:
    # NCCL fills in %h and %p.
    if "%" in path:
        return "unknown"
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return "unknown"
    return "there" if not written or os.access(path, os.W_OK) else "not writable"


def _system() -> Dict[str, Any]:
    try:
        cpus = len(os.sched_getaffinity(0))
    except OSError:
        cpus = os.cpu_count() or 1
    endpoints = sysfs.to_integer(os.environ.get("FABTUI_LAB_ENDPOINTS"))
    return {
        "host": os.environ.get("FABTUI_LAB_NODE") or socket.gethostname(),
        "kernel": os.uname().release,
        "os": parse_os_release(sysfs.text("/etc/os-release") or "") or os.uname().sysname,
        "cpus": cpus,
        # All CPU ranks of a machine that several nodes share wait for these cores.
        **{"boot_id": machine.boot_id(), "cpus_online": os.cpu_count(), "load": machine.load()},
        "memory": parse_meminfo(sysfs.text("/proc/meminfo") or ""),
        "limits": limits.read(),
        "tools": {name: run_command.find(name) for name in _TOOLS},
        "endpoints": endpoints if endpoints is not None and endpoints >= 0 else None,
        "env": {name: value[:_ENV_LIMIT] for name, value in sorted(os.environ.items()) if _ENV.fullmatch(name)},
        "env_paths": env_paths(os.environ),
    }


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/sys") -> Dict[str, Any]:
    """Read the inventory of the node. Values that are not available in time are unknown, with a reason where possible.

    ``pythons``: interpreters to try first.

    ``host``, ``kernel``, ``os``, ``cpus`` (usable ones), ``cpus_online``, ``load`` (average of a minute), ``boot_id``,
    ``memory`` (bytes), ``driver``, ``cuda``, ``nvml_error``.
    ``gpus``, ``pci_gpus`` (PCI addresses of NVIDIA GPUs, driver or not), ``nics``, ``ib``. ``data_addresses``,
    ``down_addresses``, ``pythons``, ``nccl``, ``cuda_libs``, ``limits``, ``tools``, ``endpoints``, ``env``,
    ``env_paths``.
    """
    end = time.monotonic() + deadline
    share = min(deadline * 0.7, 5.0)
    environ = dict(os.environ)
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    named = [path for path in args.get("pythons") or [] if isinstance(path, str) and path]
    asked = nvml.NvmlTask(lambda library: nvml_inventory.read(library, setting, root))
    with ThreadPoolExecutor(3) as pool:
        interpreters = pool.submit(pythons.discover, named, environ, share)
        network = pool.submit(nics.read_all, root)
        shared = pool.submit(drivers.find, environ, share)
        value = _system()
        interfaces, devices = network.result()
        files = shared.result()
        value["pythons"] = interpreters.result()
    listed, nvml_error = asked.result(max(end - time.monotonic() - 0.2, 0.1))
    listed = listed or {"driver": None, "cuda": None, "gpus": []}
    place_nics(listed["gpus"], interfaces, devices, root)
    value.update(listed)
    value.update(
        nvml_error=nvml_error,
        pci_gpus=nvml_inventory.on_pci(root),
        nics=interfaces,
        ib=ports(devices),
        down_addresses=nics.down_addresses(interfaces, devices),
        data_addresses=nics.data_addresses(interfaces, devices, environ.get("FABTUI_LAB_ADDRESS")),
        nccl=[{"path": path, "version": drivers.version_of(path)} for path in drivers.named(files, "libnccl")],
        cuda_libs=drivers.named(files, "libcuda"),
    )
    return value


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone: GPUs that the driver does not show, interfaces that limit or delay."""
    return _missing_gpus(value) + _shaped(value)


def _shaped(value: Dict[str, Any]) -> List[Judgement]:
    data = {one.get("nic") for one in objects(value.get("data_addresses"))}
    judgements = []
    for nic in objects(value.get("nics")):
        name, effect = str(nic.get("name")), _SHAPING.get(str(nic.get("qdisc")))
        if effect and nic.get("name") in data:
            text = "%s has the queueing discipline %s, which %s" % (name, nic["qdisc"], effect)
            judgements.append(judgement("qdisc", "warn", text, ["nic:" + name], "shaped-interface"))
    return judgements


def _missing_gpus(value: Dict[str, Any]) -> List[Judgement]:
    on_pci, shown = value.get("pci_gpus"), value.get("gpus")
    if not isinstance(on_pci, list) or not isinstance(shown, list):
        return []
    setting = part(value, "env").get("CUDA_VISIBLE_DEVICES")
    buses = [gpu.get("bus") for gpu in shown if isinstance(gpu, dict)]
    missing = [str(bus) for bus in on_pci if bus not in buses]
    # Where some are hidden on purpose, those on PCI are not missing.
    hidden = setting is not None if shown else setting == ""
    if hidden or not missing or (shown and None in buses):
        return []
    why = value.get("nvml_error")
    text = "the driver shows %d of %d NVIDIA GPUs" % (len(on_pci) - len(missing), len(on_pci))
    text += ": %s" % why if why else ", not %s" % ", ".join(missing[:4])
    return [judgement("gpus", "bad", text, check="gpu-count")]


PROBE = ProbeSpec(
    name="inventory",
    title="GPUs, NICs, addresses, Python interpreters, libraries and limits of the node",
    phase="connect",
    passive=True,
    needs="nothing; the NVIDIA driver for GPUs",
    gives="host, gpus, nics, ib, data_addresses, pythons, nccl, limits, tools",
    run=run,
    judge=judge,
)
