"""Layers: the quantities of the grid, each declared once as a `LayerSpec`.

Everything else is derived from the declaration: keys, tabs, legends and colours of the screen, text grids, CSV, JSON,
DataFrame pivots, and which values are judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple


class Per(StrEnum):
    """Subject of the values of a layer."""

    ENDPOINT_PAIR = "pair"
    ADDRESS_PAIR = "address pair"
    NODE_PAIR = "node pair"


class Better(StrEnum):
    """Direction in which values of a layer improve."""

    MORE = "more"
    LESS = "less"


class LayerSpec(NamedTuple):
    """Declaration of a layer."""

    name: str  #: Name in options, CSV, JSON and on the screen.
    title: str  #: Noun phrase for legends and help.
    description: str = ""  #: One sentence for the documentation.
    legend: str = ""  #: Short title for the legend, which has the unit before it; "" to use the title.
    #: What the layer holds values for; a cell of the grid shows the worst of several addresses.
    per: Per = Per.ENDPOINT_PAIR
    unit: str = ""  #: Usual unit; a measurement has its own. "" for layers without values.
    better: Better | None = Better.MORE  #: Whether more or less is better; None for layers without values.
    judged: bool = False  #: Whether a value far from the usual one of its class is slow.
    feeds_health: bool = False  #: Whether the layer ``health`` includes it.
    sizes: bool = False  #: Whether a value for each message size is kept.
    #: Layer whose measurements this one shows in another form; such a layer has none of its own.
    shows: str | None = None
    derived: bool = False  #: Whether the layer has no measurements of its own.
    key: str | None = None  #: Key that selects it on the screen; None for layers the screen has no tab for.
    grid: bool = False  #: Whether `--grids` prints it.
    probe: str | None = None  #: Test that fills it, as in ``--probes``.
    collective: str | None = None  #: NCCL collective it is measured with.
    tool: bool = False  #: Whether an external tool of the same name measures it.
    healthy: str = ""  #: What the summary states about address pairs that are well.

    @property
    def by_address(self) -> bool:
        """Return True if it holds a value for each pair of addresses of two nodes."""
        return self.per is Per.ADDRESS_PAIR

    @property
    def less_is_better(self) -> bool:
        """Return True if a smaller value is the better one."""
        return self.better is Better.LESS


_REGISTRY: dict[str, Layer] = {}


class Layer(str):
    """Name of a registered layer, with its declaration in ``spec``; there is one object per name.

    Raises:
        ValueError: No layer of this name is registered.
    """

    spec: LayerSpec

    HEALTH: ClassVar[Layer]
    P2P: ClassVar[Layer]
    WORLD: ClassVar[Layer]
    LATENCY: ClassVar[Layer]
    PING: ClassVar[Layer]
    MTU: ClassVar[Layer]
    UDP: ClassVar[Layer]
    TCP: ClassVar[Layer]
    BUSBW: ClassVar[Layer]
    TRANSPORT: ClassVar[Layer]
    CHANGE: ClassVar[Layer]
    JOB: ClassVar[Layer]
    IPERF3: ClassVar[Layer]
    IB_WRITE_BW: ClassVar[Layer]
    IB_SEND_BW: ClassVar[Layer]
    IB_READ_LAT: ClassVar[Layer]

    __slots__ = ("spec",)

    def __new__(cls, name: str) -> Layer:
        try:
            return _REGISTRY[name]
        except KeyError:
            raise ValueError(f"unknown layer {name!r}") from None

    def __reduce__(self) -> tuple[type[Layer], tuple[str]]:
        return Layer, (str(self),)


def register(spec: LayerSpec) -> Layer:
    """Register a layer, and return it.

    Raises:
        ValueError: Its name or its key is taken.
    """
    if spec.name in _REGISTRY:
        raise ValueError(f"layer {spec.name!r} is registered already")
    if spec.key is not None and any(layer.spec.key == spec.key for layer in _REGISTRY.values()):
        raise ValueError(f"layer {spec.name!r}: the key {spec.key!r} is taken")
    layer = str.__new__(Layer, spec.name)
    layer.spec = spec
    _REGISTRY[spec.name] = layer
    _forget_selections()
    return layer


@contextmanager
def registered(spec: LayerSpec) -> Iterator[Layer]:
    """Register a layer for the time of a ``with`` block."""
    layer = register(spec)
    try:
        yield layer
    finally:
        del _REGISTRY[layer]
        _forget_selections()


def _forget_selections() -> None:
    for selection in (all_layers, key_layers, measured_key_layers, grid_layers, health_layers, pair_layers):
        selection.cache_clear()


@cache
def all_layers() -> tuple[Layer, ...]:
    """Return all layers in the order of their declaration, which is the order of CSV rows."""
    return tuple(_REGISTRY.values())


@cache
def key_layers() -> tuple[Layer, ...]:
    return tuple(sorted((one for one in all_layers() if one.spec.key is not None), key=lambda one: one.spec.key or ""))


@cache
def measured_key_layers() -> tuple[Layer, ...]:
    """Return the layers of the screen's tabs that have measurements of their own."""
    return tuple(layer for layer in key_layers() if not layer.spec.derived)


@cache
def grid_layers() -> tuple[Layer, ...]:
    """Return the layers that `--grids` can print: those with keys first, in the order of their keys."""
    layers = [layer for layer in all_layers() if layer.spec.grid]
    return tuple(sorted(layers, key=lambda layer: (layer.spec.key is None, layer.spec.key or "")))


@cache
def health_layers() -> tuple[Layer, ...]:
    """Return the layers that feed into ``health``."""
    return tuple(layer for layer in all_layers() if layer.spec.feeds_health)


@cache
def pair_layers() -> tuple[Layer, ...]:
    layers = (layer for layer in all_layers() if layer.spec.per is Per.ENDPOINT_PAIR)
    return tuple(layer for layer in layers if not layer.spec.derived)


def layer_of_probe(probe: str) -> tuple[Layer, ...]:
    return tuple(layer for layer in all_layers() if layer.spec.probe == probe)


def _layer(name: str, title: str, description: str, **fields: Any) -> Layer:
    return register(LayerSpec(name=name, title=title, description=description, **fields))


_pairs = partial(_layer, feeds_health=True, grid=True, probe="p2p")
_mesh = partial(_layer, per=Per.ADDRESS_PAIR, feeds_health=True, grid=True)
_collective = partial(_layer, per=Per.NODE_PAIR, unit="GB/s", judged=True, sizes=True)


def _tool(name: str, title: str, ends: str = "ports", probe: str = "perftest", **fields: Any) -> Layer:
    fields = {"unit": "GB/s", "judged": True} | fields
    description = f"{title} between two {ends} of a rail, measured by {name}."
    return _layer(name, title, description, per=Per.ADDRESS_PAIR, feeds_health=True, tool=True, probe=probe, **fields)


# One argument per line, as the formatter has it, would hide the table.
# fmt: off
Layer.HEALTH = _layer("health", "worst verdict of all layers", "The worst verdict of all layers of a pair.",
    better=None, derived=True, key="1", grid=True)
Layer.P2P = _pairs("p2p", "one way, two-rank communicator",
    "Bandwidth from one endpoint to another in a communicator of these two ranks.",
    legend="one way", unit="GB/s", judged=True, sizes=True, key="2")
Layer.WORLD = _pairs("world", "one way, communicator of all ranks",
    "The same transfer inside the communicator of all ranks, where NCCL may relay it (PXN).",
    legend="one way", unit="GB/s", judged=True, key="3")
Layer.LATENCY = _pairs("latency", "half a round trip of a small message",
    "Half of the round-trip time of a small message.",
    legend="half a round trip", unit="us", better=Better.LESS, key="4")
Layer.PING = _mesh("ping", "round trip", "Round-trip time of ICMP echoes, and the share that is lost.",
    unit="ms", better=Better.LESS, key="5", probe="ping", healthy="{pairs} answer")
Layer.MTU = _mesh("mtu", "largest packet that passes unfragmented",
    "Largest packet that passes without fragmentation, up to the MTU of the interfaces.",
    unit="B", probe="ping", healthy="{pairs} pass packets that fill their MTU")
Layer.UDP = _mesh("udp", "datagrams lost", "Share of one-way UDP datagrams that are lost.",
    unit="%", better=Better.LESS, probe="udp", healthy="no loss on {pairs}, one way")
Layer.TCP = _mesh("tcp", "time to connect", "Time of a TCP connect to an ephemeral port.",
    unit="ms", better=Better.LESS, probe="udp", healthy="{pairs} accept TCP on an ephemeral port")
Layer.BUSBW = _collective("busbw", "all_reduce bus bandwidth of two nodes",
    "Bus bandwidth of all_reduce by message size: of node pairs, rails, nodes and all ranks.",
    legend="all_reduce of two nodes", feeds_health=True, key="6", grid=True,
    collective="all_reduce", probe="all_reduce")
Layer.TRANSPORT = _layer("transport", "path that the library chose for p2p",
    "The transport that NCCL chose for the p2p test of a pair.",
    better=None, shows="p2p", derived=True, key="7", grid=True)
Layer.CHANGE = _layer("change", "p2p against the previous sweep, or an earlier session (--baseline)",
    "Value of the p2p test over the value in the previous sweep, or in an earlier session.",
    legend="now / then", shows="p2p", derived=True, key="8", grid=True)
Layer.JOB = _layer("job", "ranks of the running job",
    "State of each rank of the running job: computing, waiting, awaited, stopped, not started, dead or idle.",
    legend="ranks of the running job", better=None, derived=True, key="9")
for _name in ("all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"):
    _collective(_name, f"{_name} bus bandwidth of a group", f"Bus bandwidth of {_name} by message size.",
        collective=_name, probe=_name)
Layer.IPERF3 = _tool("iperf3", "TCP bandwidth", "addresses", "iperf3")
Layer.IB_WRITE_BW = _tool("ib_write_bw", "RDMA write bandwidth")
Layer.IB_SEND_BW = _tool("ib_send_bw", "RDMA send bandwidth")
Layer.IB_READ_LAT = _tool("ib_read_lat", "RDMA read latency", unit="us", judged=False, better=Better.LESS)
# fmt: on

#: Layer of each NCCL collective.
COLLECTIVES: dict[str, Layer] = {layer.spec.collective: layer for layer in all_layers() if layer.spec.collective}
#: Layers of the address mesh that fabtui measures by itself.
MESH: tuple[Layer, ...] = tuple(one for one in all_layers() if one.spec.by_address and not one.spec.tool)
#: Layers of external tools.
TOOLS: tuple[Layer, ...] = tuple(layer for layer in all_layers() if layer.spec.tool)


def busbw_factor(kind: str, ranks: int) -> float:
    """Return the factor from algbw to busbw, as nccl-tests defines it for each collective."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in ("all_gather", "reduce_scatter", "alltoall"):
        return (ranks - 1) / ranks
    return 1.0
