"""What the errors of NCCL, CUDA and sockets mean, and what to type next. A table, and how it is looked into."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line

#: Of a long log so much is looked at.
_MOST_TEXT = 20_000
_SENDER, _RECEIVER = "src", "dst"


class Meaning(NamedTuple):
    """What an error means.

    Attributes:
        pattern: What is looked for in the error, and in what the library printed.
        text: What is behind it, the likeliest first.
        commands: The next commands: on which end, and what is typed there; ``{route}`` stands for the two addresses.
        result: Whether it only follows from another error.
    """

    pattern: str
    text: str
    commands: tuple[tuple[str, str], ...] = ()
    result: bool = False


def _completion(codes: str) -> str:
    """Return the pattern of a work completion: ``with error 12``, ``status=12``, ``status=NAME(12)``."""
    return rf"[Gg]ot completion .{{0,120}}(?:with error |status=(?:[A-Z_]{{1,40}}\()?)(?:{codes})\b"


def _pair_setup(codes: str, words: str) -> str:
    """Return the pattern of a queue pair that cannot be set up: by number or in words."""
    return rf"ibv_modify_qp failed.{{0,40}}(?:\b(?:{codes})\b|{words})"


def _on_both(command: str) -> tuple[tuple[str, str], ...]:
    """Return what is to be typed on either end."""
    return (_SENDER, command), (_RECEIVER, command)


_ROUTE = ((_SENDER, "ip route get {route}"), (_SENDER, "ip neigh"))
_GIDS = _on_both("show_gids")
_MTU = _on_both("ibv_devinfo | grep active_mtu")
_PEERMEM = (_SENDER, "lsmod | grep -E 'nvidia_peermem|nv_peer_mem'")

#: The first that fits counts; what follows from other errors stands at the end.
MEANINGS: tuple[Meaning, ...] = (
    Meaning(
        _pair_setup("110", "Connection timed out"),
        "the GID of the other NIC does not resolve: rails without a route to each other, a wrong GID, a VLAN",
        _ROUTE,
    ),
    Meaning(
        _pair_setup("22", "Invalid argument"),
        "this GID cannot be used: NCCL_IB_GID_INDEX is wrong here; from NCCL 2.21 on it is best left unset",
        _GIDS,
    ),
    Meaning(_pair_setup("101|113", "Network is unreachable|No route to host"), "no IP route to the other NIC", _ROUTE),
    Meaning(
        _pair_setup("19", "No such device"),
        "InfiniBand was tried on an Ethernet port, or the GID is gone",
        ((_SENDER, "ibstat"), *_GIDS),
    ),
    Meaning(
        r"ibv_(?:create_cq|create_qp|reg_mr|reg_mr_iova2?).{0,20} failed.{0,40}(?:\b12\b|Cannot allocate memory)",
        "memory cannot be locked for RDMA: the memlock limit of what started the process",
        _on_both("ulimit -l"),
    ),
    Meaning(
        r"ibv_reg_mr.{0,20} failed.{0,40}(?:\b14\b|Bad address)",
        "the NIC cannot register memory of the GPU: nvidia_peermem is missing, or does not fit the driver",
        (_PEERMEM,),
    ),
    Meaning(
        _completion("12"),
        "the other NIC acknowledged nothing (RETRY_EXC). At once: no RDMA way between the two NICs (GID, rails, VLAN, "
        "ACL). After it had worked: a link that went down, lost packets, or a process that ended",
        ((_SENDER, "ip route get {route}"), *_GIDS),
    ),
    Meaning(_completion("13"), "the receiver offered no buffer in time (RNR_RETRY): it hangs, or is far behind"),
    Meaning(
        _completion("4"),
        "the NIC may not access this memory (LOC_PROT): PCI ACS is on, or nvidia_peermem does not fit the driver",
        ((_SENDER, "sudo lspci -vvv | grep ACSCtl"), _PEERMEM),
    ),
    Meaning(
        _completion("1|9"),
        "a message is not what the other end expects (LOC_LEN, REM_INV_REQ): as a rule the MTUs of the nodes differ",
        _MTU,
    ),
    Meaning(
        _completion("8|10"),
        "memory is not registered as the other end believes (ACCESS): driver, OFED or nvidia_peermem differ",
        (_PEERMEM,),
    ),
    Meaning(
        r"NET/IB ?: No device found",
        "NCCL sees no RDMA device: library, /dev/infiniband, port state, NCCL_IB_HCA",
        ((_SENDER, "ibv_devinfo"),),
    ),
    Meaning(r"Failed to open libibverbs", "libibverbs is not installed where the ranks run: NCCL uses sockets"),
    Meaning(
        r"(?:bytes|values|elements)\b.{0,60} are wrong",
        "data came in that was not sent, and nothing on the way noticed: memory of a GPU or NIC, PCI ACS, or P2P in a "
        "virtual machine; keep the GPUs of this pair out of jobs",
        _on_both("nvidia-smi -q -d ECC,ROW_REMAPPER"),
    ),
    Meaning(
        r"the rank host of .{1,255} ended with signal (?:9|SIGKILL)",
        "something killed the ranks: as a rule the kernel, out of memory, or the scheduler of the site",
        _on_both("sudo dmesg -T | grep -i 'killed process'"),
    ),
    Meaning(
        r"the rank host of .{1,255} is frozen",
        "a process does not run any more: stopped by somebody, or stuck in the driver or a file system",
        _on_both("ps -eo pid,stat,wchan:32,args"),
    ),
    Meaning(r"Failed to initialize any NET plugin", "NCCL_NET names a network that is not there"),
    Meaning(
        r"no socket interface found|no device found matching",
        "NCCL_SOCKET_IFNAME matches no interface of this node",
        _on_both("ip -br addr"),
    ),
    Meaning(
        r"async fatal event|async event: port error|GID table changed",
        "a port went down, or changed its address, while it was used",
        _on_both("sudo dmesg -T | grep -i mlx5"),
    ),
    Meaning(r"connect incompatible devices", "InfiniBand and RoCE are mixed: limit NCCL_IB_HCA to one kind"),
    Meaning(
        r"mixed local Net device counts",
        "a node has fewer NICs than the others",
        _on_both("ibv_devices"),
    ),
    Meaning(r"Mismatched NCCL version", "the nodes have different versions of NCCL"),
    Meaning(
        r"Duplicate GPU detected|Multiple Ranks are using the same GPU",
        "two ranks were given one GPU: two names of one machine, or CUDA_VISIBLE_DEVICES",
    ),
    Meaning(
        r"\b802\b.{0,20}system not yet initialized|system not yet initialized",
        "NVSwitches are not set up: the Fabric Manager does not run, or has another version than the driver",
        ((_SENDER, "systemctl status nvidia-fabricmanager"),),
    ),
    Meaning(
        r"[Cc]uda failure.{0,10}out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory",
        "another process holds the memory of the GPU",
        _on_both("nvidia-smi"),
    ),
    Meaning(
        r"failed to extend /dev/shm|/dev/shm.{0,80}No space left",
        "/dev/shm is too small, as in containers without --shm-size",
        ((_SENDER, "df -h /dev/shm"),),
    ),
    Meaning(
        r"wrong type -?\d+ != |(?:wrong|mismatch\w*) magic|magic mismatch",
        "something else spoke on this port: another job, a scanner, or another version of NCCL",
    ),
    Meaning(
        r"No route to host|\bEHOSTUNREACH\b",
        "no route, a host that does not answer ARP, or a firewall that rejects",
        _ROUTE,
    ),
    Meaning(
        r"[Cc]onnect to .{0,80}Connection refused|[Cc]onnect to .{0,80}ECONNREFUSED",
        "nothing listens there: the other process is gone, or a firewall rejects",
        ((_RECEIVER, "sudo nft list ruleset"),),
    ),
    Meaning(
        r"Connect to .{0,80}(?:Connection timed out|Software caused connection abort)|exceeded error retry count",
        "TCP is not answered: a firewall that drops, or an interface that does not lead there (NCCL_SOCKET_IFNAME)",
        ((_SENDER, "ip route get {route}"), (_RECEIVER, "sudo nft list ruleset")),
    ),
    Meaning(_completion("5"), "it follows from an earlier error of the same connection (WR_FLUSH)", result=True),
    Meaning(
        r"closed by remote peer|Proxy Call to rank \d{1,6}",
        "it follows from the end of the other process: look there first",
        result=True,
    ),
)
_COMPILED = tuple((re.compile(one.pattern), one) for one in MEANINGS)


def meaning_of(*said: str | None) -> Meaning | None:
    """Return what the first known error among some texts means, or None; causes go before what follows from them.

    Args:
        said: The error, then what the library printed, as far as there is any.
    """
    texts = [text[:_MOST_TEXT] for text in said if text]
    return next((one for pattern, one in _COMPILED if any(pattern.search(text) for text in texts)), None)


def meaning_of_measurement(m: Measurement | None) -> Meaning | None:
    """Return the meaning of the error of a measurement; None if it has none, or if a lab made it."""
    return None if m is None or m.made or not m.error else meaning_of(m.error, m.raw)


class ErrorFact(NamedTuple):
    """The error that most of some pairs have.

    Attributes:
        text: The error.
        pairs: How many pairs have it, where there are others; else None.
        others: How many other errors there are.
    """

    text: str
    pairs: int | None = None
    others: int = 0


class CommonError(NamedTuple):
    """The error that most of some pairs have, and a measurement that has it."""

    fact: ErrorFact
    example: Measurement


def common_error(model: Model, cells: Iterable[tuple[str, str]]) -> CommonError | None:
    """Return the error that most of some pairs have, or None if none has any."""
    counted: dict[str, int] = {}
    examples: dict[str, Measurement] = {}
    for pair in cells:
        latest = model.latest(Layer.P2P, *pair) or model.latest(Layer.WORLD, *pair)
        if latest is not None and latest.error:
            text = one_line(latest.error, 200)
            counted[text] = counted.get(text, 0) + 1
            examples.setdefault(text, latest)
    if not counted:
        return None
    text, most = max(counted.items(), key=lambda item: (item[1], item[0]))
    fact = ErrorFact(text, most, len(counted) - 1) if len(counted) > 1 else ErrorFact(text)
    return CommonError(fact, examples[text])
