"""Outputs of commands that probes run: facts of a node as values of these probes, and the pairs of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

from fabtui.importers.formats.host_commands import PCIE_MARGIN, pcie_limited
from fabtui.importers.to_model import benchmarks
from fabtui.model.facts.node_view import dicts
from fabtui_node.parsers import dmesg
from fabtui_node.parsers.base import Format
from fabtui_node.parsers.ib import fabric, management, perftest, rdma_ports, roce_qos
from fabtui_node.parsers.nccl import log_lines
from fabtui_node.parsers.net import ethtool, iperf3, lldp
from fabtui_node.parsers.nvidia import imex_ctl, query_csv, smi_nvlink, smi_query, smi_table, topo
from fabtui_node.parsers.nvidia.values import problem_text
from fabtui_node.probes.nvidia.gpu_health import from_query
from fabtui_node.probes.rdma.ib_fabric import fabric_of, link_of, ports_with_errors

Values = dict[str, Any]
Facts = dict[str, Values]
#: What ibv_devinfo knows of a port as the probe does; it shows GIDs without their types.
_PORT = ("port", "state", "link_layer", "max_mtu", "active_mtu")


def _of(probe: str) -> Callable[[Values], Facts]:
    return lambda values: {probe: values}


def _queried(values: Values) -> Facts:
    gpus = [from_query(index, gpu) for index, gpu in enumerate(values["gpus"])]
    # GPUs have no numbers here: without a part of them, their order means nothing.
    whole = values["attached"] == len(gpus)
    for gpu in gpus:
        label = f"GPU {gpu['index']} ({gpu['bus']})" if whole else f"GPU {gpu['bus']}"
        gpu.update(label=label if gpu["bus"] else None, index=gpu["index"] if whole or not gpu["bus"] else None)
    return {"gpus": {"driver": values["driver"], "gpus": gpus, "problems": _problems(values)}}


def _table(values: Values) -> Facts:
    gpus = [
        {
            **{name: gpu[name] for name in ("index", "bus", "perf", "utilization")},
            "ecc_errors": {"uncorrected": gpu["ecc_uncorrected"]},
            "lost": "nvidia-smi shows ERR! in place of values" if gpu["errors"] else None,
        }
        for gpu in values["gpus"]
    ]
    return {"gpus": {"driver": values["driver"], "gpus": gpus, "problems": _problems(values)}}


def _problems(values: Values) -> list[str]:
    return [problem_text(error) for error in dicts(values.get("errors"))]


def _rows(values: Values) -> Facts:
    """Return the fields of a query as GPUs; a field that was not asked for is unknown, as is the number of a GPU."""
    gpus = []
    for number, row in enumerate(dicts(values["rows"])):
        index = row.get("index", number)
        pending, failure = (row.get(f"remapped_rows.{name}") for name in ("pending", "failure"))
        width, most = (row.get(f"pcie.link.width.{name}") for name in ("current", "max"))
        bus = row.get("pci.bus_id") or row.get("gpu_bus_id")
        known = isinstance(index, int) and "index" in row
        gpus.append(
            {
                "index": index if known else None if bus else number,
                "label": f"GPU {bus}" if bus and not known else None,
                "bus": bus,
                "ecc_errors": {"uncorrected": row.get("ecc.errors.uncorrected.volatile.total")},
                "rows": {"pending": bool(pending), "failure": bool(failure)},
                "pcie": {"width": width, "width_max": most},
                "busy": bool(row.get("utilization.gpu")),
            }
        )
    return {"gpus": {"gpus": gpus, "problems": _problems(values)}}


def _verbs(values: Values) -> Facts:
    devices = [(device["ca"], dicts(device["ports"])) for device in values["devices"]]
    ports = [{"ca": ca, **{name: port[name] for name in _PORT}} for ca, found in devices for port in found]
    return {"rdma": {"ports": ports}, **_port_states([{**port, "ca": ca} for ca, found in devices for port in found])}


def _port_states(ports: list[Values]) -> Facts:
    names = ("port", "state", "physical_state", "rate", "lid", "sm_lid", "link_layer")
    cas: dict[str, list[Values]] = {}
    for port in ports:
        cas.setdefault(port["ca"], []).append({name: port.get(name) for name in names})
    return {"ibstat": {"cas": [{"ca": ca, "ports": found} for ca, found in cas.items()]}}


def _gids(values: Values) -> Facts:
    """Return GID tables as ports; of the GIDs of an interface, only those of RoCE v2 with an IPv4 address serve."""
    ports: dict[tuple[str, int], Values] = {}
    usable = {(gid["ca"], gid["port"]): gid["index"] for gid in values["roce_v2_ipv4"]}
    for gid in values["gids"]:
        key = gid["ca"], gid["port"]
        start = {"ca": key[0], "port": key[1], "gids": [], "gid_index": usable.get(key), "link_layer": None}
        port = ports.setdefault(key, start)
        port["gids"].append(gid)
        port["link_layer"] = "Ethernet" if gid["netdev"] else port["link_layer"]
    return {"rdma": {"ports": list(ports.values())}}


def _nvlinks(values: Values) -> Facts:
    """Return the links of GPUs that the text shows whole: a text that was cut shows no link of the others."""
    gpus = [gpu for gpu in values["gpus"] if not gpu.get("cut")]
    return {"nvlink": {"gpus": [{**gpu, "label": f"GPU {gpu['bus']}"} if gpu.get("bus") else gpu for gpu in gpus]}}


def _links(values: Values) -> Facts:
    """Return a walk over a fabric; what its ports counted is not in it."""
    return {"ibfabric": {"ports": [], "fabric": fabric_of(values["links"])}}


def _port_infos(values: Values) -> Facts:
    """Return the ports that a fabric was asked about, known by their LIDs; a peer's block follows its port's."""
    infos = [block for block in values["blocks"] if "link" in block]
    pairs: Iterator[tuple[Values, Values]] = zip_longest(infos, infos[1:], fillvalue={})
    links, states = [], []
    for own, peer in pairs:
        if not _is_peer(own):
            place, link = {"ca": f"LID {own['lid']}" if own["lid"] else "port", "port": own["port"]}, own["link"]
            links.append({**place, "link": link_of(link, peer.get("link") if _is_peer(peer) else None)})
            state = "Initializing" if link["state"] == "Initialize" else link["state"]
            states.append({**place, "state": state, "physical_state": link["physical_state"]})
    return {"ibfabric": {"ports": links}, **_port_states(states)}


def _is_peer(block: Values) -> bool:
    return (block.get("of") or "").startswith("Peer")


def _counters(values: Values) -> Facts:
    blocks = [block for block in values["blocks"] if block["port"] not in (None, 255)]
    names = [f"LID {block['lid']}" if block["lid"] else "this node's" for block in blocks]
    ports = [{**block, "node": name, "guid": None} for name, block in zip(names, blocks, strict=True)]
    return _with_errors(ports)


def _with_errors(ports: list[Values]) -> Facts:
    errors = ports_with_errors(ports)
    return {"ibfabric": {"ports": [], "fabric": {"leaves": {}, "below": [], "errors": errors}}}


#: PCIe links by GB/s, as NCCL reckons with them.
_PCIE = {6.0: "as Gen3 x8", 12.0: "as Gen3 x16", 24.0: "as Gen4 x16"}


def _graph(values: Values) -> dict[str, Facts]:
    """Return NICs that NCCL's system graph shows behind slower PCIe, as the kernel reports them."""
    limited: dict[str, list[Values]] = {}
    for link in values["nic_links"]:
        if link["rate"] > PCIE_MARGIN * link["pcie"] > 0:
            like = f" ({_PCIE[link['pcie']]})" if link["pcie"] in _PCIE else ""
            limits = f" of {link['rate']:g} GB/s is limited to {link['pcie']:g} GB/s by its PCIe link{like}"
            limited.setdefault(link["host"] or "", []).append(pcie_limited(link["net"], link["bus"], limits))
    return {host: {"kernel": {"counts": counts}} for host, counts in limited.items()}


def _of_one_node(facts: Callable[[Values], Facts]) -> Callable[[Values], dict[str, Facts]]:
    return lambda values: {"": facts(values)}


_FACTS: dict[str, Callable[[Values], Facts]] = {
    "nvidia-smi-nvlink-s": _nvlinks,
    "nvidia-smi-nvlink-e": _nvlinks,
    "nvidia-smi-q": _queried,
    "nvidia-smi": _table,
    "nvidia-smi-query": _rows,
    "nvidia-smi-remapped-rows": _rows,
    "nvidia-smi-topo-m": lambda values: {"topology": {"matrix": values}},
    "nvidia-smi-topo-p2p": lambda values: {"topology": {"p2p": {values["capability"] or "read": values}}},
    "nvidia-imex-ctl": lambda values: {"imex": imex_ctl.seen_by(values, lambda _: False)},
    "dmesg": _of("kernel"),
    "ibstat": _of("ibstat"),
    "ibstatus": lambda values: _port_states(values["ports"]),
    "ibv_devinfo": _verbs,
    "rdma-link": lambda values: _port_states(values["links"]),
    "show_gids": _gids,
    "perfquery": _counters,
    "lldpctl": _of("lldp"),
    "ethtool": lambda values: {"rdma": {"nics": values["interfaces"]}},
    "mlnx_qos": lambda values: {"rdma": {"qos": [values]}},
    "dcb": lambda values: {"rdma": {"qos": [values]}},
    "ibnetdiscover": _links,
    "iblinkinfo": _links,
    "ibportstate": _port_infos,
    "smpquery": _port_infos,
    "ibqueryerrors": lambda values: _with_errors(values["ports"]),
}
_MODULES = (
    *(dmesg, ethtool, fabric, imex_ctl, lldp, management, query_csv, rdma_ports, roce_qos),
    *(smi_nvlink, smi_query, smi_table, topo),
)
FORMATS: list[Format] = [
    *(
        form._replace(facts=_of_one_node(_FACTS[form.name]))
        for module in _MODULES
        for form in module.FORMATS
        if form.name in _FACTS
    ),
    *(form._replace(facts=_graph) for form in log_lines.FORMATS),
    *(form._replace(convert=benchmarks.perftest, errors=True) for form in perftest.FORMATS),
    *(form._replace(convert=benchmarks.iperf3, errors=True) for form in iperf3.FORMATS),
]
