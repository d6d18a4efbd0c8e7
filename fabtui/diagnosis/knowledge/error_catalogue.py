"""Catalogue of errors of NCCL, CUDA and sockets: meanings and next commands, from two files of the same form."""

from __future__ import annotations

import functools
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.pattern_set import PatternSet
from fabtui.model.endpoints import node_of
from fabtui.model.measurement import Measurement
from fabtui.sanitize import one_line

#: The files: errors of nodes and fabrics, kinds of errors of programs and settings, of inference stacks and services,
#: and kinds of failures that any program has.
_GENERAL = "general_errors"
CATALOGUES = ("errors", "program_errors", "service_errors", _GENERAL)
#: Roles of entries; causes go before their consequences.
_ROLES = ("cause", "consequence", "notice")
#: Maximum number of characters of a log that are searched.
_MOST_TEXT = 20_000
#: Words of the field: beside them, a failure that has a known form in any program is one of a job.
_FIELD = """vllm sglang UCX nvshmem NVSHMEM DeepEP deep_ep nixl NIXL ooncake mscclpp lmcache LMCache nvidia NVIDIA
CUDA libcuda kube default-scheduler mca_ ORTE parallel_size HSA_ slurm srun pyxis enroot mpirun prterun
mlx5 infiniband deepspeed megatron Megatron raylet torchrun tensorrt_llm TensorRT dynamo flashinfer
hipError rocm amdgpu transformers pytorch_lightning accelerate EngineCore torch/ /torch
pdsh etcd NVRM dkms RDMA rdma ibv_ tensor_parallel NCCL_ CUDNN cudnn containerd OCI"""
#: Words that name the programs and libraries of ``within``.
_PROGRAMS = {
    "nccl": ("NCCL", "RCCL", "nccl"),
    "torch": (
        *("torch/distributed", "torch.distributed", "c10d", "ProcessGroup", "process group", "TCPStore"),
        *("[rank", "[Rank ", "CollectiveFingerPrint"),
    ),
    "gloo": ("gloo", "Gloo", "GLOO"),
    "perftest": (
        *("ib_write_", "ib_read_", "ib_send_", "ib_atomic_", "raw_ethernet_", "perftest", "Perftest"),
        *("RDMA_Write ", "RDMA_Read ", "Send BW", "Send Latency", " BW Test", " Latency Test"),
    ),
    "ofi": ("NET/OFI", "libfabric", "Libfabric"),
    "field": (
        *_FIELD.split(),
        *("Open MPI", "parallel size", "compute capability", "ray.", "orted:", "ray start", "gcs_"),
    ),
}
#: A value of the line in a command or a next step, such as ``{nic}``.
_PLACE = re.compile(r"\{([a-z]{2,10})\}")
_ROUTE = "RECEIVER_ADDRESS from SENDER_ADDRESS"
#: What differs between errors with one cause: addresses with ports, endpoints and ranks, process ids, other numbers.
_DETAILS = re.compile(r"[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){2,7}|[\w.-]{1,64}:\d{1,5}\b|\d[\d.,]{0,40}(?:<\d{1,5}>)?")


class Meaning(NamedTuple):
    """Meaning of an error."""

    id: str  #: Stable name.
    code: str  #: Number, such as ``E13``; entries that stand for one error share it.
    prints: str  #: Example of the error as libraries print it.
    #: Regular expression for the error and the output of the library; None if lines do not show the error.
    pattern: str | None
    kind: str  #: Error kind on the wire that has this meaning, or "".
    text: str  #: Likely causes, the likeliest first.
    next: str  #: What to do.
    #: Next commands, each with the end it runs on: ``src``, ``dst``, or the ``node`` that has the error.
    commands: tuple[tuple[str, str], ...]
    refines: str  #: The error that this one is under a circumstance, or "".
    when: str  #: The circumstance: ``later`` or ``same-node``, or "".
    follows: tuple[str, ...]  #: Causes that explain this error where they come earlier in a log.
    role: str  #: ``cause``, ``consequence`` (of an error elsewhere) or ``notice`` (no error by itself).
    #: The circumstance in which alone a cause is one, and else a notice: ``several-nodes``, ``alone`` or "".
    cause_if: str = ""
    stages: tuple[str, ...] = ()  #: Stages (``stages.toml``) at which it occurs; any without.
    within: str = ""  #: The program whose name a log must have for this error to count; "" for any log.
    general: bool = False  #: Whether it is known by its form alone, in any program.
    beside: str = ""  #: Pattern of another part of the text, beside which the error that it refines is this one.

    @property
    def sentence(self) -> str:
        """The code, which ``fabtui explain`` knows, and the causes."""
        return f"{self.code}, {self.text}"

    @property
    def facts(self) -> dict[str, str]:
        return {"meaning": self.sentence, "code": self.code, "do": self.next}


@functools.cache
def meanings() -> tuple[Meaning, ...]:
    """Return the catalogue of errors; the first match counts."""
    read = [_meaning(entry, name == _GENERAL) for name in CATALOGUES for entry in load(name)["error"]]
    return tuple(sorted(read, key=lambda meaning: (meaning.general, _ROLES.index(meaning.role))))


@functools.cache
def _patterns() -> PatternSet[int]:
    return PatternSet((at, meaning.pattern) for at, meaning in enumerate(meanings()) if meaning.pattern is not None)


def prepared() -> Iterator[None]:
    """Read the catalogue and compile its patterns, once; yield after each part: all take 20 ms, and a key waits."""
    for name in CATALOGUES:
        load(name)
        yield
    meanings()
    yield
    _patterns()
    yield


def _meaning(one: Mapping[str, Any], general: bool) -> Meaning:
    return Meaning(
        general=general,
        beside=one.get("beside", ""),
        **{name: one[name] for name in ("id", "code", "prints", "text", "next")},
        **{name: one.get(name, "") for name in ("kind", "refines", "when", "cause_if")},
        pattern=one.get("pattern"),
        commands=tuple(_commands(one)),
        follows=tuple(one.get("follows", ())),
        role=one.get("role", "cause"),
        stages=tuple(one.get("stages", ())),
        within=one.get("within", ""),
    )


def _commands(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for end in ("src", "dst", "node"):
        yield from ((end, command) for command in one.get(end, ()))
    yield from ((end, command) for command in one.get("both", ()) for end in ("src", "dst"))


@functools.cache
def _program_words() -> PatternSet[str]:
    return PatternSet((name, re.escape(word)) for name, words in _PROGRAMS.items() for word in words)


def programs_in(text: str) -> frozenset[str]:
    """Return the programs that a log names, and ``library`` if it names any."""
    programs = frozenset(_program_words().owners(text))
    # The last one goes with most of the others.
    programs |= {"field"} if programs & {"nccl", "gloo", "ofi", "perftest"} else frozenset()
    return programs | {"library"} if programs - {"field"} else programs


def meaning_of(
    *texts: str | None,
    kind: str | None = None,
    notices: bool = False,
    programs: Collection[str] | None = None,
    general: bool = False,
    possible: Collection[int] | None = None,
) -> Meaning | None:
    """Return the meaning of an error, or None if it is unknown; causes go before their consequences.

    Args:
        texts: The error, then the output of the library.
        kind: The error kind on the wire.
        notices: Whether lines that are not errors by themselves count.
        programs: The programs that the log names (`programs_in`); None for what a test of fabtui printed.
        general: Whether entries count that are known by their form alone; only these do.
        possible: The entries that may match, where a search has shown them.
    """
    known = [text[:_MOST_TEXT] for text in texts if text]
    if possible is None:
        possible = {at for text in known for at in _patterns().owners(text)}
    if kind:
        possible = {*possible, *(at for at, one in enumerate(meanings()) if one.kind == kind)}
    for one in (meanings()[at] for at in sorted(possible)):
        if kind and one.kind == kind:
            return one
        if one.pattern is None or one.general != general or (one.role == "notice" and not notices):
            continue
        if one.within and programs is not None and one.within not in programs:
            continue
        if any(re.search(one.pattern, text) for text in known):
            return one
    return None


def general_meaning(line: str, possible: Collection[int] | None = None) -> Meaning | None:
    """Return the kind of failure that a line of any program has by its form; None without any."""
    return meaning_of(line[:1_000], general=True, possible=possible)


def meaning_named(name: str) -> Meaning:
    return next(one for one in meanings() if one.id == name)


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the values of a line in its placeholders; a word in capitals stands for an unknown value."""
    return _PLACE.sub(lambda found: values.get(found[1]) or (_ROUTE if found[1] == "route" else found[1].upper()), text)


def fills(command: str, values: Mapping[str, str]) -> bool:
    """Return True if all values that a command names are known; a route has words for unknown ones."""
    return values.keys() | {"route"} >= set(_PLACE.findall(command))


def of_line(meaning: Meaning, line: str, beside: str = "") -> Meaning:
    """Return a meaning with what the groups of its pattern have in a line, and of its circumstance beside the line.

    A command about a part that the line does not have is left out.
    """
    groups = dict[str, str | None]()
    for pattern, text in ((meaning.pattern, line[:_MOST_TEXT]), (meaning.beside, beside)):
        if pattern and "(?P<" in pattern and (found := re.search(pattern, text)):
            groups |= found.groupdict()
    if not groups:
        return meaning
    own = {name: one_line(value or "", 200) for name, value in groups.items()}

    def put(text: str, quoted: bool = False) -> str:
        return _PLACE.sub(
            lambda place: (
                place[0]
                if (value := own.get(place[1])) is None
                else (shlex.quote(value) if quoted and value else value)
            ),
            text,
        )

    # Alternatives of one place stand side by side: one of them has a value.
    sentence = re.sub(r"^: |: (?=[:;,]|$)| (?=[ ;,])| \(\)", "", put(meaning.text))
    commands = tuple(
        (end, put(command, quoted=True))
        for end, command in meaning.commands
        if not (names := set(_PLACE.findall(command)) & own.keys()) or any(own[name] for name in names)
    )
    return meaning._replace(text=sentence, next=put(meaning.next), commands=commands)


def refined(meaning: Meaning, when: str) -> Meaning:
    """Return what an error means under a circumstance: ``later`` or ``same-node``."""
    return next((one for one in meanings() if one.when and one.refines == meaning.id and one.when == when), meaning)


def refined_beside(meaning: Meaning, text: str) -> tuple[Meaning, str]:
    """Return what an error means beside other parts of a text, with the part that shows it."""
    for one in meanings():
        if one.beside and meaning.id in one.refines.split() and (found := re.search(one.beside, text)):
            return one._replace(pattern=meaning.pattern), found[0]
    return _of_version(meaning, text), ""


def _of_version(meaning: Meaning, text: str) -> Meaning:
    """Return what an error means beside a version that has a bug which shows it."""
    forms = load("version_bugs")["component"]
    for bug in load("version_bugs")["bug"]:
        if meaning.id not in bug["refines"].split() or not re.search(bug.get("beside", ""), text):
            continue
        versions = [found[found.lastindex or 0] for found in re.finditer(forms[bug["of"]], text)]
        has = next((one for one in versions if _version(bug["since"]) <= _version(one) < _version(bug["until"])), None)
        if has is not None:
            ends = f"{bug['until']} ends it" if bug["until"] else "no version that ends it is known"
            known = f"a bug of {bug['of']} {has}: {bug['text']}; {ends} ({bug['source']})"
            return meaning._replace(id="version-bug", text=known, next=bug["next"], commands=())
    return meaning


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("."))) if text else (sys.maxsize,)


def meaning_of_measurement(m: Measurement | None) -> Meaning | None:
    """Return the meaning of the error of a measurement, or None.

    If a lab made the error, its text counts, as a real error has the same, and the output of the library does not: the
    processes wait for what the lab holds back.
    """
    if m is None or not m.error:
        return None
    meaning = meaning_of(m.error, None if m.made else m.raw, kind=error_kind(m))
    node = node_of(m.src)
    if meaning is None or not node or node != node_of(m.dst):
        return meaning
    return None if meaning.cause_if == "several-nodes" else refined(meaning, "same-node")


def error_kind(m: Measurement) -> str | None:
    """Return the error kind of a measurement; None in recordings of fabtui 0.1.0, whose errors are text only."""
    kind = (m.extra or {}).get("error_kind")
    return kind if isinstance(kind, str) else None


class ErrorFact(NamedTuple):
    """The error that most of some pairs have."""

    text: str  #: The error.
    pairs: int | None = None  #: How many pairs have it, where there are others; else None.
    others: int = 0  #: How many other errors there are.


class CommonError(NamedTuple):
    """The error that most of some pairs have, a measurement that has it, and its text without details."""

    fact: ErrorFact
    example: Measurement
    kind: str


@functools.lru_cache(maxsize=65536)
def kind_of_error(error: str) -> str:
    """Return an error without its details, in which errors with one cause differ."""
    return _DETAILS.sub("#", one_line(error, 200))


def common_error(
    counted: Mapping[str, int], rows: Mapping[str, int], example: Callable[[int], Measurement]
) -> CommonError | None:
    """Return the error that most of some measurements have, or None if none has any.

    Their numbers, and a row of one, are by error without details; ``example`` returns the measurement of a row.
    """
    if not counted:
        return None
    kind, most = max(counted.items(), key=lambda item: (item[1], item[0]))
    measurement = example(rows[kind])
    text = one_line(measurement.error or "", 200)
    fact = ErrorFact(text, most, len(counted) - 1) if len(counted) > 1 else ErrorFact(text)
    return CommonError(fact, measurement, kind)
