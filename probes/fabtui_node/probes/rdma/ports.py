"""Probe ``rdma``: MTU, GIDs, P_Keys and counters of each RDMA port, its interface, and NCCL settings."""

from __future__ import annotations

import concurrent.futures
import os
import re
import time
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.parsers.ib import fi_info, rdma_ports, roce_qos
from fabtui_node.parsers.net import ethtool
from fabtui_node.probes import counters
from fabtui_node.probes.judgement import judgement, part, some, texts
from fabtui_node.probes.rdma import port_counters
from fabtui_node.registry import Judgement, ProbeSpec, Value
from fabtui_node.system import pci, rdma_devices, run_command, sysfs

_MAX_NICS = 32
_THREADS = 8
_PKEYS_READ = 128
#: Maximum number of GIDs reported per port.
_GIDS_KEPT = 32
_SIZES = (4096, 2048, 1024, 512, 256)
#: What RoCE's headers may take of an interface's MTU, as the kernel reckons.
_HEADERS = 96
#: From this rate on (Gb/s) a small MTU costs bandwidth.
_FAST = 100.0
#: Maximum number of GIDs of a port.
_MOST_GIDS = 256
_MAPPED = re.compile(
    r"(?:0000:){5}ffff:([0-9a-f]{2})([0-9a-f]{2}):([0-9a-f]{2})([0-9a-f]{2})", re.ASCII | re.IGNORECASE
)

#: From this version on NCCL chooses the index by itself.
CHOOSES_SINCE = "2.21"
#: Variables of NCCL that choose the class of its packets.
VARIABLES = ("NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_FIFO_TC")
_MOST_VARIABLES = 200


def run(args: Value, emit: Any, deadline: float, root: str = "/sys") -> Value:
    """Read the RDMA ports and the interfaces that carry data.

    ``nics``: interfaces to ask ``ethtool`` about, besides the interfaces of RoCE ports; without it, interfaces with an
    address which data may use.

    ``{"ports": [{"ca", "port", "type", "state", "physical_state", "link_layer", "rate" (Gb/s), "lanes", "netdev",
    "max_mtu", "active_mtu" (B), "mtu_from" ("ibv_devinfo", "interface" or None), "netdev_mtu" (B), "gids" (the first of
    them), "gid_count", "roce_v2_ipv4" (all indexes of such GIDs), "gid_index" (the first of those), "ipv4", "pkeys",
    "errors", "saturated", "refresh" (ms)}], "nics": [{"interface", "speed" (Mb/s), "fastest" (Mb/s), "link", "pause",
    "driver", "firmware", "serial", "module", "discards", "error"}], "nccl": {...}, "env": {...}, "warnings": [text]}``,
    and with active RoCE ports ``qos`` (of each, as of `read_qos`) and ``conf`` (variables of NCCL's files), with
    Elastic Fabric Adapters ``efa`` (``{"domains", "error"}`` of ``fi_info``). What is not known is None. ``errors``
    are the counters of trouble that are not zero, since the driver was loaded; ``refresh`` how old ``hw_counters`` may
    be.
    The kernel shows ``serial``, and ``module``, ``{"vendor", "part", "serial"}`` of a module or cable, to root alone.
    """
    end = time.monotonic() + deadline * 0.8
    devices = rdma_devices.devices(root)
    warnings: List[str] = []
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        verbs = pool.submit(run_command.run, ["ibv_devinfo"], deadline * 0.5) if devices else None
        links = pool.submit(run_command.run, ["rdma", "link"], deadline * 0.5) if devices else None
        ports = [_port(root, device, port) for device in devices for port in device["ports"]]
        _take_interfaces(ports, links.result() if links else None)
        names = _interfaces(args, ports, root)
        asked = [pool.submit(_nic, name, root, end) for name in names]
        roce = [port for port in ports if port["link_layer"] == "Ethernet" and port["netdev"]]
        active = [port for port in roce if port["state"] == "Active"][:_MAX_NICS]
        classes = [pool.submit(read_qos, port, root, end) for port in active]
        _take_verbs(ports, verbs.result() if verbs else None, warnings)
        nics = [nic.result() for nic in asked]
        qos = [one.result() for one in classes]
        libfabric = _libfabric(end) if any(port["type"] == "EFA" for port in ports) else None
    for port in ports:
        _derive_mtu(port, root)
    env = {name: os.environ[name][:200] for name in ("NCCL_IB_GID_INDEX", "NCCL_IB_HCA") if os.environ.get(name)}
    value = {"ports": ports, "nics": nics, "nccl": nccl_advice(ports), "env": env, "warnings": warnings}
    if libfabric is not None:
        value["efa"] = libfabric
    return dict(value, qos=qos, conf=conf_variables(os.environ.get("HOME"))) if qos else value


def _libfabric(end: float) -> Optional[Value]:
    """Return the adapters that libfabric finds, and why there is none; None if the node has no ``fi_info``."""
    for path in ("fi_info", "/opt/amazon/efa/bin/fi_info"):
        result = run_command.run([path, "-p", "efa"], end - time.monotonic())
        if not result.missing:
            values = fi_info.parse(result.stdout + "\n" + result.stderr).values
            known = values["domains"] or values["error"]
            return {"domains": values["domains"], "error": values["error"]} if known else None
    return None


def _port(root: str, device: Value, port: Value) -> Value:
    ca, number = device["ca"], port["port"]
    folder = os.path.join(root, "class/infiniband", ca, "ports", str(number))
    gids = read_gids(folder)
    usable = [gid for gid in gids if gid["type"] == "RoCE v2" and gid["ipv4"]]
    keys = [name for name in sysfs.names(folder, "pkeys")[:_PKEYS_READ] if name.isdecimal()]
    return {
        "ca": ca,
        "type": device["type"],
        **{name: port[name] for name in ("port", "state", "physical_state", "link_layer", "rate", "netdev")},
        "lanes": port_counters.lanes(sysfs.text(folder, "rate")),
        **dict.fromkeys(("max_mtu", "active_mtu", "mtu_from", "netdev_mtu")),
        "gids": gids[:_GIDS_KEPT] + [gid for gid in usable[:1] if gid not in gids[:_GIDS_KEPT]],
        "gid_count": len(gids),
        "roce_v2_ipv4": [gid["index"] for gid in usable],
        "gid_index": usable[0]["index"] if usable else None,
        "ipv4": usable[0]["ipv4"] if usable else None,
        "pkeys": ["0x%04x" % key for name in keys if (key := sysfs.integer(folder, "pkeys", name))],
        **port_counters.read(folder),
    }


def _take_interfaces(ports: List[Value], result: Optional[run_command.CommandResult]) -> None:
    if result is None or result.missing:
        return
    known = {
        (link["ca"], link["port"]): link["netdev"] for link in rdma_ports.parse_rdma_link(result.stdout).values["links"]
    }
    for port in ports:
        if port["netdev"] is None:
            port["netdev"] = known.get((port["ca"], port["port"]))


def _take_verbs(ports: List[Value], result: Optional[run_command.CommandResult], warnings: List[str]) -> None:
    if result is None or result.missing:
        return
    # Its exit code is about the last device only.
    reading = rdma_ports.parse_devinfo(result.stdout + "\n" + result.stderr)
    warnings += ["ibv_devinfo: " + warning for warning in reading.warnings[:5]]
    known = {
        (device["ca"], port["port"]): port for device in reading.values["devices"] for port in device["ports"] or []
    }
    for port in ports:
        of_verbs = known.get((port["ca"], port["port"]))
        if of_verbs is None:
            continue
        port["max_mtu"], port["active_mtu"] = of_verbs["max_mtu"], of_verbs["active_mtu"]
        port["mtu_from"] = "ibv_devinfo" if of_verbs["active_mtu"] is not None else None
        if port["state"] != "unknown" and of_verbs["state"] not in ("unknown", port["state"]):
            text = "%s/%d: %s in sysfs, %s in ibv_devinfo"
            warnings.append(text % (port["ca"], port["port"], port["state"], of_verbs["state"]))


def _derive_mtu(port: Value, root: str) -> None:
    """Fill in values of the interface: a RoCE port has the largest MTU that its interface can carry."""
    if not port["netdev"]:
        return
    mtu = sysfs.integer(root, "class/net", port["netdev"], "mtu")
    port["netdev_mtu"] = mtu
    if port["active_mtu"] is None and mtu is not None and port["link_layer"] == "Ethernet":
        port["active_mtu"] = next((size for size in _SIZES if size <= mtu - _HEADERS), None)
        port["mtu_from"] = "interface" if port["active_mtu"] is not None else None


def _interfaces(args: Value, ports: List[Value], root: str) -> List[str]:
    named = args.get("nics")
    if isinstance(named, list):
        names = [name for name in named if isinstance(name, str)]
    else:
        names = counters.data_interfaces(root)
    names += [port["netdev"] for port in ports if port["netdev"] and port["link_layer"] == "Ethernet"]
    known = set(sysfs.names(root, "class/net"))
    return [name for name in dict.fromkeys(names) if name in known][:_MAX_NICS]


def _nic(name: str, root: str, end: float) -> Value:
    """Return the values of ``ethtool`` and sysfs of an interface."""

    def ask(*options: str) -> run_command.CommandResult:
        return run_command.run(["ethtool", *options, name], end - time.monotonic())

    speed = sysfs.integer(root, "class/net", name, "speed")
    state = sysfs.text(root, "class/net", name, "operstate") or ""
    nic: Value = {
        "interface": name,
        "speed": speed if speed is not None and speed > 0 else None,
        "link": {"up": "yes", "down": "no"}.get(state, "unknown"),
        "discards": {},
        "serial": pci.serial(root, "class/net", name, "device"),
        **dict.fromkeys(("fastest", "pause", "driver", "firmware", "module", "error")),
    }
    settings = ask()
    if settings.missing:
        return dict(nic, error=settings.why())
    shown = ethtool.parse(settings.stdout).values["interfaces"]
    if shown:
        nic["speed"] = shown[0]["speed"] or nic["speed"]
        nic["fastest"] = shown[0]["fastest"]
        nic["link"] = shown[0]["link"] if shown[0]["link"] != "unknown" else nic["link"]
    else:
        nic["error"] = settings.why()
    driver = ethtool.parse_driver(ask("-i").stdout).values
    nic["driver"], nic["firmware"] = driver["driver"], driver["firmware"]
    pause = ethtool.parse_pause(ask("-a").stdout).values["interfaces"]
    nic["pause"] = {"rx": pause[0]["rx"], "tx": pause[0]["tx"]} if pause else None
    statistics = ethtool.parse_statistics(ask("-S").stdout).values["counters"]
    nic["discards"] = port_counters.discards(statistics)
    # Last: some modules answer slowly.
    module = ethtool.parse_module(ask("-m").stdout).values
    if module["serial"]:
        nic["module"] = {name: module[name] for name in ("vendor", "part", "serial")}
    return nic


def ipv4(gid: Optional[str]) -> Optional[str]:
    """Return the IPv4 address that a GID stands for, None if it stands for none."""
    match = _MAPPED.fullmatch(gid or "")
    return ".".join(str(int(part, 16)) for part in match.groups()) if match else None


def read_gids(port: str) -> List[Dict[str, Any]]:
    """Return ``[{"index", "gid", "type", "ipv4", "netdev"}]`` of a port, given its folder in sysfs.

    ``type``: ``RoCE v1``, ``RoCE v2``, ``InfiniBand``, or None if unknown.
    """
    roce = sysfs.text(port, "link_layer") == "Ethernet"
    entries = []
    for index, gid, kind in rdma_devices.gids(port, _MOST_GIDS):
        if kind == "IB/RoCE v1":
            kind = "RoCE v1" if roce else "InfiniBand"
        netdev = sysfs.text(port, "gid_attrs/ndevs", str(index))
        entries.append({"index": index, "gid": gid, "type": kind, "ipv4": ipv4(gid), "netdev": netdev or None})
    return entries


def read_qos(port: Dict[str, Any], root: str, end: float) -> Dict[str, Any]:
    """Return the quality of service of a RoCE port; what nothing on the node shows is None.

    ``{"ca", "port", "interface", "trust", "dscp": {priority: [DSCP]}, "pfc": [priority], "ecn_np": [priority],
    "ecn_rp", "class", "cma_tos", "dcbx", "from": [source]}``: ``ecn_np`` are the priorities in which the port answers
    marked packets with notifications, ``ecn_rp`` those in which it slows down for them; ``class`` replaces the traffic
    class that a library asks for, ``cma_tos`` is the default of connections by rdma_cm.
    """
    name = str(port["netdev"])
    qos: Dict[str, Any] = {"ca": port["ca"], "port": port["port"], "interface": name, "from": []}
    qos.update(dict.fromkeys(("trust", "dscp", "pfc", "dcbx")))
    folder = os.path.join(root, "class/net", name)
    _take_qos(qos, "mlnx_qos", _asked(["mlnx_qos", "-i", name], roce_qos.parse_mlnx_qos, end))
    if qos["pfc"] is None:
        for table in ("pfc", "app"):
            _take_qos(qos, "dcb", _asked(["dcb", "-j", table, "show", "dev", name], roce_qos.parse_dcb, end))
    trust = sysfs.text(folder, "qos/trust")
    dscps = roce_qos.parse_dscp2prio(sysfs.text(folder, "qos/dscp2prio") or "")
    _take_qos(qos, "sysfs", {"trust": trust if trust in ("dscp", "pcp") else None, "dscp": dscps})
    if qos["trust"] == "pcp":
        qos["dscp"] = None
    for way in ("np", "rp"):
        qos["ecn_" + way] = _priorities(os.path.join(folder, "ecn", "roce_" + way, "enable"))
    here = os.path.join(root, "class/infiniband", port["ca"], "tc", str(port["port"]))
    tclass = roce_qos.TRAFFIC_CLASS.search(sysfs.text(here, "traffic_class") or "")
    qos["class"] = int(tclass[1]) if tclass else None
    ports = os.path.join(root, "kernel/config/rdma_cm", port["ca"], "ports", str(port["port"]))
    qos["cma_tos"] = sysfs.integer(ports, "default_roce_tos")
    return qos


def _asked(argv: List[str], parse: Any, end: float) -> Dict[str, Any]:
    result = run_command.run(argv, end - time.monotonic())
    values: Dict[str, Any] = parse(result.stdout).values if result.ok else {}
    return values


def _take_qos(found: Dict[str, Any], source: str, values: Dict[str, Any]) -> None:
    new = {name: value for name, value in values.items() if value is not None and found.get(name) is None}
    if new:
        found.update(new)
        found["from"] = list(dict.fromkeys([*found["from"], source]))


def _priorities(folder: str) -> Optional[List[int]]:
    """Return the priorities whose file contains 1; None unless all eight can be read."""
    switches = [sysfs.integer(folder, str(priority)) for priority in range(8)]
    return None if None in switches else [priority for priority, on in enumerate(switches) if on]


def conf_variables(home: Optional[str], etc: str = "/etc") -> Dict[str, str]:
    """Return the variables of NCCL's own files that choose a class: those of the home folder come first."""
    values: Dict[str, str] = {}
    for path in (os.path.join(etc, "nccl.conf"), os.path.join(home or "/nonexistent", ".nccl.conf")):
        for line in (sysfs.text(path) or "").splitlines()[:_MOST_VARIABLES]:
            name, _, value = line.strip().partition("=")
            if name in VARIABLES:
                values[name] = value.strip()[:20]
    return values


def nccl_advice(ports: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return what to set for the ports of a node: ``{"gid_index", "gid_why", "hca", "hca_why"}``.

    None: leave the variable unset. The index is worth setting for NCCL older than `CHOOSES_SINCE` alone, and only
    where all ports have the same; on InfiniBand, never. The list of devices is worth setting where ports are active
    that NCCL should not use: slower ones, or of another link layer.
    """
    active = [port for port in ports if port["state"] == "Active"]
    roce = [port for port in active if port["link_layer"] == "Ethernet"]
    gid_index, gid_why = _gid_index(roce)
    hca, hca_why = _hca(active)
    return {"gid_index": gid_index, "gid_why": gid_why, "hca": hca, "hca_why": hca_why}


def _gid_index(roce: List[Dict[str, Any]]) -> Any:
    if not roce:
        return None, "no RoCE port is active: leave NCCL_IB_GID_INDEX unset"
    indexes = {port["gid_index"] for port in roce}
    if indexes == {None}:
        return None, "no port has a RoCE v2 GID of an IPv4 address: leave NCCL_IB_GID_INDEX unset"
    if len(indexes) > 1:
        words = {port["gid_index"]: "none" if port["gid_index"] is None else port["gid_index"] for port in roce}
        listed = ", ".join("%s/%d: %s" % (p["ca"], p["port"], words[p["gid_index"]]) for p in roce[:8])
        text = "the index differs (%s): leave NCCL_IB_GID_INDEX unset, with NCCL %s or newer"
        return None, text % (listed, CHOOSES_SINCE)
    index = indexes.pop()
    text = "leave NCCL_IB_GID_INDEX unset; NCCL older than %s needs NCCL_IB_GID_INDEX=%d" % (CHOOSES_SINCE, index)
    return index, text


def _hca(active: List[Dict[str, Any]]) -> Any:
    known = [port for port in active if port["rate"] is not None]
    if len(known) < len(active) or not active:
        return None, "leave NCCL_IB_HCA unset" if not active else "rates are not known: leave NCCL_IB_HCA unset"
    top = max(port["rate"] for port in known)
    best = [port for port in known if port["rate"] == top]
    layers = {port["link_layer"] for port in best}
    if len(layers) > 1:
        return None, "InfiniBand and RoCE are equally fast: choose with NCCL_IB_HCA if they are of two networks"
    if len(best) == len(known):
        return None, "all active ports are alike: leave NCCL_IB_HCA unset"
    others = ", ".join("%s/%d (%g Gb/s)" % (p["ca"], p["port"], p["rate"]) for p in known if p not in best)
    hca = "=" + ",".join("%s:%d" % (port["ca"], port["port"]) for port in best)
    return hca, "NCCL_IB_HCA=%s keeps NCCL off %s" % (hca, others)


def judge(value: Value) -> List[Judgement]:
    """Return what is bad on this node alone: ``failed``, ``slow``, ``inconclusive`` (may be meant so) or ``note``."""
    judgements: List[Judgement] = []
    ports = [port for port in value.get("ports") or [] if isinstance(port, dict)]
    for port in ports:
        subject = "%s/%s" % (port.get("ca"), port.get("port"))
        judgements += [judgement(subject, verdict, text) for verdict, text in _of_port(port)]
    judgements += _of_adapters(value, ports)
    known = {port.get("netdev") for port in ports}
    for nic in value.get("nics") or []:
        judged = _of_nic(nic, nic.get("interface") in known)
        judgements += [judgement(str(nic.get("interface")), verdict, text) for verdict, text in judged]
    return judgements + _of_environment(value, ports)


def _of_adapters(value: Value, ports: List[Value]) -> List[Judgement]:
    efa = [port for port in ports if port.get("type") == "EFA"]
    judgements = [
        judgement("%s/%s" % (port.get("ca"), port.get("port")), verdict, text, check="efa")
        for port in efa
        for verdict, text in port_counters.judge_efa(port)
    ]
    seen, error = texts(part(value, "efa").get("domains")), part(value, "efa").get("error")
    missing = [str(port.get("ca")) for port in efa if port.get("ca") not in seen and port.get("state") == "Active"]
    if isinstance(error, str) and not seen and efa:
        text = "libfabric finds none of the %d adapters: %s" % (len(efa), error[:200])
        judgements.append(judgement("efa", "warn", text, check="efa"))
    elif seen and missing:
        text = "libfabric finds %d of %d adapters, not %s" % (len(efa) - len(missing), len(efa), some(missing))
        judgements.append(judgement("efa", "warn", text, check="efa"))
    return judgements


def _of_port(port: Value) -> List[Tuple[str, str]]:
    # Ports that are down, or slower than others, are judged by the probe ibstat.
    judged: List[Tuple[str, str]] = []
    # What lists GIDs alone knows no states.
    if port.get("state") not in (None, "Active"):
        return port_counters.judge_counts(port)
    mtu, most = port.get("active_mtu"), port.get("max_mtu") or 4096
    if port.get("link_layer") == "InfiniBand" and mtu and mtu < most:
        judged.append(("slow", "active MTU %d B of %d B: the subnet manager or the other end sets it so" % (mtu, most)))
    if port.get("link_layer") == "Ethernet" and mtu and mtu < 4096 and (port.get("rate") or 0) >= _FAST:
        text = "RoCE with an MTU of %d B, as its interface has one of %s B: 4096 B need 4200 or more"
        judged.append(("slow", text % (mtu, port.get("netdev_mtu") or "unknown")))
    if port.get("link_layer") == "Ethernet" and port.get("gids") and port.get("gid_index") is None:
        judged.append(("inconclusive", "no RoCE v2 GID of an IPv4 address: NCCL has none to choose by itself"))
    keys = port.get("pkeys") or []
    if keys and all(int(key, 16) < 0x8000 for key in keys if isinstance(key, str)):
        judged.append(("inconclusive", "only a limited member of its partitions: two such ports cannot talk"))
    return judged + port_counters.judge_counts(port)


def _of_nic(nic: Value, of_port: bool) -> List[Tuple[str, str]]:
    judged = []
    if nic.get("link") == "no" and not of_port:
        judged.append(("failed", "no link"))
    speed, fastest = nic.get("speed"), nic.get("fastest")
    if nic.get("link") == "yes" and speed and fastest and speed < fastest:
        # That a switch is slower than an adapter is usual; that it is much slower is not.
        verdict = "slow" if speed * 4 < fastest else "note"
        judged.append((verdict, "runs at %g Gb/s, can do %g" % (speed / 1000.0, fastest / 1000.0)))
    return judged


def _of_environment(value: Value, ports: List[Value]) -> List[Judgement]:
    setting = sysfs.to_integer((value.get("env") or {}).get("NCCL_IB_GID_INDEX"))
    if setting is None or setting < 0:
        return []
    judgements = []
    for port in ports:
        usual = port.get("gid_index")
        if port.get("state") == "Active" and usual is not None and setting not in (port.get("roce_v2_ipv4") or []):
            text = "NCCL_IB_GID_INDEX=%d is not a RoCE v2 GID of an IPv4 address here; %d is" % (setting, usual)
            judgements.append(judgement("%s/%s" % (port.get("ca"), port.get("port")), "failed", text))
    return judgements


PROBE = ProbeSpec(
    name="rdma",
    title="RDMA ports in detail: MTU, GIDs, P_Keys, counters, pause and speed of their interfaces, NCCL settings",
    phase="inspect",
    passive=True,
    needs="/sys/class/infiniband; ibv_devinfo for the MTU of InfiniBand, ethtool (root: modules), mlnx_qos or dcb",
    gives="MTU, GIDs, index of the RoCE v2 IPv4 GID, NCCL_IB_GID_INDEX and NCCL_IB_HCA, trust, PFC and ECN, errors",
    run=run,
    judge=judge,
    requires="ib",
    next="ssh {node} ibv_devinfo -v",
)
