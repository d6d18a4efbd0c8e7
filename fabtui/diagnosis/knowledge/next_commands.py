"""Commands for further inspection, and commands that test a pair by hand."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from fabtui.diagnosis.finding import Finding, NextStep
from fabtui.diagnosis.knowledge.error_catalogue import filled
from fabtui.model.endpoints import Endpoint, node_of
from fabtui.model.layers import Layer
from fabtui.model.measurement import DEAD, Measurement, Verdict
from fabtui.model.records import listed, probed
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui.transport.registry import LAUNCHED, command_on_node

#: Rendezvous port of a test by hand.
PORT = 29517
#: An ssh command without options: the node, and what follows it.
_SSH = re.compile(r"ssh ((?:-v )?)('[^']*'|[^\s'-]\S*) (\S.*)")
#: Errors of the memory of a node, as the kernel logs them.
_MEMORY_ERRORS = "sudo dmesg | grep -iE 'mce|edac'"
_CONTAINER_TOOLS = ("kubectl", "oc", "docker", "podman", "nerdctl", "k3s", "microk8s")
#: The TCP port in the error of a connection.
_PORT_IN = re.compile(r"[:<](\d{4,5})(?=[>:\s)]|$)")
_NOT_PASSED = (*DEAD, Verdict.INCONCLUSIVE)
#: What TCP repeated, and what came out of order, on a node since it was booted.
_REPEATED = "nstat -asz TcpRetransSegs TcpExtTCPOFOQueue"
#: PyTorch program of a test by hand, a format string. No single quotes: the shell uses those.
_BY_HAND = (
    "import sys, time, torch, torch.distributed as d; "
    'd.init_process_group("{backend}"); r = d.get_rank(); t = torch.zeros({count}, device="{device}"); '
    "f = lambda: d.send(t, 1) if r == 0 else d.recv(t, 0); w = {wait}; "
    "f(); w(); s = time.time(); [f() for _ in range({iters})]; w(); "
    'sys.stdout.write("rank %d: %.2f GB/s\\n" % (r, {iters} * t.numel() * 4 / (time.time() - s) / 1e9)); '
    "sys.stdout.flush(); d.barrier(); d.destroy_process_group()"
)


def on_node(node: str, command: str, model: Model | None = None) -> str:
    return typed(f"ssh {shlex.quote(one_line(node, 255))} {command}", model)


def host_of(step: str) -> str:
    """Return the node that a command runs on, or "" if it runs on this machine."""
    if isinstance(step, NextStep):
        return step.node
    found = _SSH.fullmatch(step)
    return found[2].strip("'") if found else ""


def in_order_of_blame(model: Model, finding: Finding) -> tuple[str, ...]:
    """Return the commands of a finding that its nodes can run, those on blamed nodes and on this machine first.

    If there are commands for innocent nodes alone, one about the NIC of what is blamed comes before them.
    """
    steps = [step for step in finding.next if not ("nvidia-smi" in step and _has_ranks_only(model, host_of(step)))]
    blamed = finding.blamed_nodes
    steps.sort(key=lambda step: bool(blamed) and host_of(step) not in ("", *blamed))
    if not steps or not blamed or host_of(steps[0]) in ("", *blamed):
        return tuple(steps)
    ends = [end for end in model.endpoints if end.node in blamed and finding.subject.name.endswith(f" {end.nic}")]
    node = ends[0].node if ends else sorted(blamed)[0]
    plain = "uptime" if model.gone(node) else "ip -br addr"
    return (*(nic_commands(model, ends[0]) if ends else [on_node(node, plain, model)]), *steps)


def _has_ranks_only(model: Model, node: str) -> bool:
    return {end.kind for end in model.table.of_node(node)} == {"cpu"}


def is_this_machine(model: Model) -> bool:
    """Return whether the nodes of a session are this machine, so that commands for them need no login."""
    return model.lab is not None or model.options.get("transport") == "local"


def typed(command: str, model: Model | None) -> str:
    """Return an ``ssh NODE`` command in the terms of a session's transport.

    The nodes of a lab and of ``local`` are this machine: the step has a remark, and the text as in other sessions. A
    node that an output of a tool does not name is not reached: its command is one to type where the output is from.
    Otherwise ssh gets the configuration file of the session, and where srun or another launcher reaches the node, that
    is named.
    """
    if (found := _SSH.fullmatch(command)) is None:
        return command
    verbose, quoted, remote = found.groups()
    node = quoted.strip("'")
    if model is None:
        return NextStep(command, node, remote)
    if node in (one_line(str(one), 255) for one in model.options.get("unnamed", ())):
        return remote
    if is_this_machine(model):
        return NextStep(command, node, remote, "local" if model.lab is None else "lab")
    record, text = model.nodes.get(node), command
    if record is not None and record.backend in LAUNCHED:
        text = one_line(command_on_node(model.options, node, remote, record.backend), 2000)
    elif config := model.options.get("ssh_config"):
        text = f"ssh {verbose}-F {shlex.quote(one_line(str(config), 500))} {quoted} {remote}"
    return NextStep(text, node, remote)


def login_words(model: Model, node: str) -> list[str]:
    """Return the command that logs in to a node; [] where the nodes of a session are this machine."""
    options = model.options
    if is_this_machine(model):
        return []
    backend = model.nodes[node].backend if node in model.nodes else ""
    if backend in LAUNCHED:
        words = shlex.split(command_on_node(options, node, "sh -i", backend))
        # Without a terminal, a shell in a container neither edits lines nor ends programs with Ctrl+C.
        asked = ["-it" if word == "-i" and at < words.index("sh") else word for at, word in enumerate(words)]
        # ``kubectl exec`` and its like give a command a terminal if asked with ``-t``.
        takes = Path(words[0]).name in _CONTAINER_TOOLS and "exec" in words
        return [words[0], "--pty", *words[1:]] if backend == "srun" else asked if takes else words
    config = options.get("ssh_config")
    return ["ssh", *(["-F", str(config)] if config else []), "--", node]


def _address(*found: str | None) -> str | None:
    for text in found:
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_address((text or "").partition("%")[0]))
    return None


def pair_commands(model: Model, src: str, dst: str) -> list[str]:
    """Return commands that inspect a bad ordered pair, by how it fails and by what passes; none if it is ok."""
    a, b = model.table.number(src), model.table.number(dst)
    if a is None or b is None or a == b:
        return []
    ends = model.endpoints[a], model.endpoints[b]
    off = ends[0].node != ends[1].node
    ping, own = model.measured_for(Layer.PING, a, b), model.measured_for(Layer.P2P, a, b)
    own = own or model.measured_for(Layer.WORLD, a, b)
    tested = [model.measured_for(layer, a, b) for layer in (Layer.PING, Layer.UDP, Layer.TCP)]
    commands: list[str] = []
    if off and ping is not None and model.verdict(ping) in _NOT_PASSED:
        commands += path_commands(model, *ends, ping)
    verdict = Verdict.OK if own is None else model.verdict(own)
    if verdict is not Verdict.SLOW and verdict not in _NOT_PASSED:
        return commands
    if verdict is Verdict.WRONG:
        # The path works: what passes through it is damaged.
        commands += data_commands(model, *ends)
    elif not off:
        commands += within_commands(model, *ends)
    elif verdict is Verdict.SLOW:
        commands += link_commands(model, *ends)
    elif {model.verdict(one) for one in tested if one is not None} == {Verdict.OK}:
        commands += failure_commands(model, *ends)
    else:
        commands += path_commands(model, *ends, own if _on_own_rails(model, own) else None)
    return list(dict.fromkeys(commands))


def _on_own_rails(model: Model, m: Measurement | None) -> bool:
    """Return False if a pair used addresses of other rails, as the rendezvous of a library does."""
    for name, address in () if m is None else ((m.src, m.src_addr), (m.dst, m.dst_addr)):
        node = node_of(name)
        if any(end.address == address and str(end) != name for end in model.table.of_node(node) if address):
            return False
    return True


def path_commands(model: Model, src: Endpoint, dst: Endpoint, measurement: Measurement | None = None) -> list[str]:
    """Return commands that test the path between two endpoints of different nodes without their GPUs."""
    here = _address(measurement.src_addr if measurement is not None else None, src.address)
    there = _address(measurement.dst_addr if measurement is not None else None, dst.address)
    typed_ = []
    if here and there:
        # A source of the other family is an error of the command.
        alike = (":" in here) is (":" in there)
        typed_ = [f"ping -c3 {f'-I {here} ' if alike else ''}{there}"]
        # What a router passes on has no entry there.
        typed_ += [f"ip neigh show to {there}"] if src.rail == dst.rail else []
        typed_.append(f"ip route get {there}{f' from {here}' if alike else ''}")
    return [*(on_node(src.node, command, model) for command in typed_), *rdma_command(model, src, dst)]


def route_ends(model: Model, m: Measurement) -> str | None:
    """Return the ends of a pair as arguments of ``ip route get``, or None if an address is unknown."""
    a, b = model.table.number(m.src), model.table.number(m.dst)
    ends = (None if a is None else model.endpoints[a].address), (None if b is None else model.endpoints[b].address)
    here, there = _address(m.src_addr, ends[0]), _address(m.dst_addr, ends[1])
    if not here or not there:
        return None
    return f"{there} from {here}" if (":" in here) is (":" in there) else there


def commands_of_meaning(model: Model, commands: Iterable[tuple[str, str]], m: Measurement) -> list[str]:
    src, dst = node_of(m.src), node_of(m.dst)
    nodes = {"src": (src,), "dst": (dst,), "node": (src, dst)}
    port = _PORT_IN.search(m.error or "")
    known = {"route": route_ends(model, m) or "", "port": port[1] if port else ""}
    return [
        on_node(node, filled(command, {**known, "node": node}), model)
        for end, command in dict.fromkeys(commands)
        if not any(f"{{{name}}}" in command for name, value in known.items() if not value)
        for node in nodes[end]
    ]


def link_commands(model: Model, src: Endpoint, dst: Endpoint) -> list[str]:
    """Return commands that inspect the NICs of two endpoints, for a path that works and is slow or stalls."""
    if src.kind == dst.kind == "cpu" and not (_is_rdma(model, src) or _is_rdma(model, dst)):
        ends = [command for end in (src, dst) for command in slow_nic_commands(model, end)]
        return [by_fabtui(model, str(src), str(dst)), *ends]
    return [*nic_commands(model, src), *nic_commands(model, dst), *rdma_command(model, src, dst)]


def failure_commands(model: Model, src: Endpoint, dst: Endpoint) -> list[str]:
    """Return commands that separate path, firewall and library, for a pair that fails although its network passes."""
    again = by_fabtui(model, str(src), str(dst), debug=True)
    if _is_rdma(model, src) or _is_rdma(model, dst):
        return [again, *nic_commands(model, src), *nic_commands(model, dst), *rdma_command(model, src, dst)]
    # A rule that drops or rejects is a firewall; with none, packets are lost on the path.
    return [on_node(dst.node, "sudo nft list ruleset", model), on_node(src.node, _REPEATED, model), again]


def slow_nic_commands(model: Model, endpoint: Endpoint) -> list[str]:
    """Return commands that inspect a NIC that works and is slow: shapers of its node, and what TCP had to repeat."""
    if _is_rdma(model, endpoint):
        return nic_commands(model, endpoint)
    shaper = f"tc -s qdisc show{f' dev {shlex.quote(one_line(endpoint.nic, 60))}' if endpoint.nic else ''}"
    return [on_node(endpoint.node, command, model) for command in (shaper, _REPEATED)]


def slow_node_commands(model: Model, node: str) -> list[str]:
    """Return commands about the TCP of a node that is slow with all others, over any of its NICs."""
    memory = "sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem net.ipv4.tcp_window_scaling"
    return [on_node(node, command, model) for command in (_REPEATED, memory, "ss -ti")]


def flap_commands(model: Model, src: str, dst: str) -> list[str]:
    """Return commands that show whether the links of a pair went and came back; none within a node."""
    numbers = [model.table.number(end) for end in (src, dst)]
    ends = [model.endpoints[number] for number in numbers if number is not None]
    if len({end.node for end in ends}) < len((src, dst)):
        return within_commands(model, *ends)
    return [command for end in ends for command in nic_commands(model, end)]


def data_commands(model: Model, src: Endpoint, dst: Endpoint) -> list[str]:
    """Return commands that look for what damages data: memory of GPUs and nodes, and errors of the links."""
    commands = []
    for end in (src, dst):
        memory = f"nvidia-smi -q -i {end.index} -d ECC,ROW_REMAPPER" if end.kind == "gpu" else _MEMORY_ERRORS
        commands.append(on_node(end.node, memory, model))
    if src.node == dst.node:
        return commands
    return [*commands, *nic_commands(model, src), *nic_commands(model, dst), *rdma_command(model, src, dst)]


def within_commands(model: Model, *ends: Endpoint) -> list[str]:
    """Return commands that inspect the path between GPUs of a node."""
    if any(end.kind != "gpu" for end in ends):
        return []
    gpus = ",".join(dict.fromkeys(str(end.index) for end in ends))
    links = all(_has_nvlinks(model, end) for end in ends)
    commands = ("topo -p2p n", f"nvlink -e -i {gpus}" if links else "topo -m")
    return [on_node(ends[0].node, f"nvidia-smi {command}", model) for command in commands]


def _has_nvlinks(model: Model, end: Endpoint) -> bool:
    """Return True if a GPU is known to have NVLinks; without them, nvidia-smi has no counters to show."""
    gpus = probed(model.nodes.get(end.node), "nvlink", "gpus")
    return any(gpu.get("index") == end.index and gpu.get("links") for gpu in gpus)


def gpu_commands(model: Model, endpoint: Endpoint) -> list[str]:
    if endpoint.kind != "gpu":
        return []
    nvlink = [f"nvidia-smi nvlink -e -i {endpoint.index}"] if _has_nvlinks(model, endpoint) else []
    commands = [
        f"nvidia-smi -q -i {endpoint.index} -d ECC,PERFORMANCE,PAGE_RETIREMENT",
        *nvlink,
        "sudo dmesg | grep -i xid",
    ]
    return [on_node(endpoint.node, command, model) for command in commands]


def has_gpus(model: Model, node: str) -> bool:
    """Return True if GPUs of a node are tested, and not CPU ranks."""
    return any(end.kind == "gpu" for end in model.table.of_node(node))


def node_commands(model: Model, node: str) -> list[str]:
    """Return commands that inspect what all NICs of a node share: topology and GPUDirect."""
    if not has_gpus(model, node):
        return [on_node(node, "ip -s link", model)]
    return [
        on_node(node, "nvidia-smi topo -m", model),
        on_node(node, "lsmod | grep -E 'nvidia_peermem|nv_peer_mem'", model),
    ]


def nic_commands(model: Model, endpoint: Endpoint) -> list[str]:
    if not endpoint.nic:
        return [on_node(endpoint.node, "ip -s link", model)]
    nic = shlex.quote(one_line(endpoint.nic, 60))
    # Twice -s: with it, the changes of the carrier are counted (transns).
    command = f"ibstat {nic}" if _is_rdma(model, endpoint) else f"ip -s -s link show {nic}"
    return [on_node(endpoint.node, command, model)]


def by_fabtui(model: Model, src: str, dst: str, *, debug: bool = False) -> str:
    """Return the fabtui command that tests a pair alone, with the options of this session.

    With ``debug``, NCCL prints what it does, and the addresses are tested in all ways.
    """
    ends = node_of(src), node_of(dst)
    words = ["fabtui", "run", *_reached(model, ends)]
    options = model.options
    # Recordings of 0.2.0 may have another engine, which is no longer a choice.
    if options.get("engine") in ("nccl", "gloo"):
        words += ["--engine", str(options["engine"])]
    for name in ("bytes", "ranks_per_node"):
        if isinstance(options.get(name), int):
            words += [f"--{name.replace('_', '-')}", str(options[name])]
    probes = "ping,udp,tcp,p2p" if debug else "ping,p2p"
    words += ["--probes", probes, "--pair", f"{one_line(src, 255)}>{one_line(dst, 255)}"]
    gpus = [
        end.kind for name in (src, dst) if (at := model.table.number(name)) is not None for end in [model.endpoints[at]]
    ]
    return shlex.join([*words, *(["--env", "NCCL_DEBUG=INFO"] if debug and "gpu" in gpus else [])])


def _reached(model: Model, nodes: Iterable[str]) -> list[str]:
    if model.lab is not None:
        return ["--lab", model.lab, *(word for fault in model.faults for word in ("--lab-fault", fault))]
    words = ["--nodes", ",".join(dict.fromkeys(one_line(node, 255) for node in nodes))]
    usual = {"transport": "ssh", "ssh_config": None, "host_key_policy": "config", "remote_python": None}
    for name, default in usual.items():
        if options := model.options.get(name):
            words += [f"--{name.replace('_', '-')}", str(options)] if options != default else []
    return words


def _is_rdma(model: Model, endpoint: Endpoint) -> bool:
    devices = [port.get("ca") for port in listed(model.nodes.get(endpoint.node), "ib")]
    return bool(endpoint.nic) and (endpoint.nic in devices or str(endpoint.nic).startswith("mlx"))


def rdma_command(model: Model, src: Endpoint, dst: Endpoint) -> list[str]:
    """Return the command that measures RDMA between the NICs of two nodes without GPUs; none without RDMA."""
    if model.lab is not None or not (_is_rdma(model, src) and _is_rdma(model, dst)):
        return []
    return [shlex.join(["fabtui", "run", *_reached(model, (src.node, dst.node)), "--probes", "perftest"])]


def group_command(model: Model, nodes: Iterable[str], kind: str) -> str:
    words = ["fabtui", "run", *_reached(model, nodes), "--probes", "all_reduce"]
    return shlex.join([*words, *(["--collectives", kind] if kind != "all_reduce" else [])])


def session_command(model: Model, *words: str, of: Sequence[str] = ()) -> str:
    """Return the command that sweeps the nodes of a session, or some ``of`` them, again, with other options."""
    nodes = list(of or model.nodes)
    return shlex.join(["fabtui", "run", *_reached(model, nodes if len(nodes) <= 2 else [fold(nodes)]), *words])


def by_hand(model: Model, src: str, dst: str) -> str:
    """Return a shell command that sends between two endpoints with plain PyTorch; "" if impossible.

    It needs a Python with PyTorch and a login without prompt on both nodes, and one free TCP port.
    """
    a, b = model.table.number(src), model.table.number(dst)
    if a is None or b is None or a == b:
        return ""
    ends = model.endpoints[a], model.endpoints[b]
    if any(end.kind == "none" for end in ends):
        return ""
    measured = model.measured_for(Layer.P2P, a, b)
    size = (measured.asked_bytes if measured is not None else None) or 64 << 20
    gpu = all(end.kind == "gpu" for end in ends)
    code = _BY_HAND.format(
        device="cuda" if gpu else "cpu",
        backend="nccl" if gpu else "gloo",
        wait="torch.cuda.synchronize" if gpu else "lambda: None",
        count=max(1, size // 4),
        iters=20,
    )
    master = ends[0].address or ends[0].node
    parts = []
    for rank, end in enumerate(ends):
        words = [f"RANK={rank}", "WORLD_SIZE=2", f"MASTER_ADDR={one_line(master, 255)}", f"MASTER_PORT={PORT}"]
        words += [f"CUDA_VISIBLE_DEVICES={end.uuid or end.index}", "NCCL_DEBUG=INFO"] if gpu else []
        if not gpu and (name := _interface(model, end)):
            words.append(f"GLOO_SOCKET_IFNAME={name}")
        python = _python(model, end.node)
        inner = shlex.join([*words, python, "-c", code])
        parts.append(on_node(end.node, shlex.quote(inner), model) if not is_this_machine(model) else inner)
    return f"{parts[0]} & {parts[1]}; wait"


def _interface(model: Model, end: Endpoint) -> str:
    known = listed(model.nodes.get(end.node), "data_addresses")
    entries = [entry for entry in known if entry.get("address") == end.address]
    return next((one_line(nic, 60) for entry in entries if isinstance(nic := entry.get("nic"), str)), "")


def _python(model: Model, node: str) -> str:
    entries = [entry for entry in listed(model.nodes.get(node), "pythons") if entry.get("torch")]
    return next((one_line(path, 255) for entry in entries if isinstance(path := entry.get("path"), str)), "python3")
