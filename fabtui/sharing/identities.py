"""Names that a session holds: what its fields and texts show to be a host, a user or a serial number."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

#: Fields that hold hosts, users and names of jobs; those with ``serial`` in their name hold serial numbers.
_HOST_FIELDS = frozenset(
    (
        *("node", "nodes", "host", "hosts", "hostname", "src_node", "dst_node", "leaf", "HOSTNAME", "SLURMD_NODENAME"),
        *("fqdn", "pod", "pod_name", "nodename", "node_name"),
    )
)
_USER_FIELDS = frozenset(
    ("user", "users", "username", "owner", "login", "account", "USER", "LOGNAME", "SLURM_JOB_USER", "SLURM_JOB_ACCOUNT")
)
_JOB_FIELDS = frozenset(
    ("job_name", "jobname", "JobName", "SLURM_JOB_NAME", "partition", "SLURM_JOB_PARTITION", "namespace")
)
#: Words that name nobody: accounts of systems, and what stands for a host.
_NOBODY = frozenset(
    (
        *("root", "nobody", "daemon", "slurm", "git", "munge", "ssh", "sshd", "systemd"),
        *("localhost", "all", "none", "null", "unknown", "true", "false", "n/a"),
    )
)
_HOST = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")
_IPV4 = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")
HOME = r"/(?:home|users|Users)/(?P<owner>[A-Za-z0-9_.-]+)"
_TEXTS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("/", "user", re.compile(HOME)),
    ("\\Users\\", "user", re.compile(r"\\Users\\{1,2}([A-Za-z0-9_.-]+)")),
    # Entity and project of Weights & Biases.
    ("wandb.ai/", "user", re.compile(r"\bwandb\.ai/([\w.-]{1,64})")),
    ("wandb.ai/", "job", re.compile(r"\bwandb\.ai/[\w.-]{1,64}/([\w.-]{1,64})")),
    ("pod", "host", re.compile(r"\bpods?/([a-z0-9][a-z0-9.-]{0,252})")),
    ("@", "user", re.compile(r"(?<![\w.@/-])([a-z_][a-z0-9_-]{0,31})@(?=[A-Za-z0-9])")),
    ("@", "host", re.compile(r"(?<=[a-z0-9_-]@)([A-Za-z][\w.-]*)")),
    ("user", "user", re.compile(r"\b[Uu]ser(?:name|Id)?(?:[=:] ?| ['\"]?)([a-z_][a-z0-9_-]*)['\"]?(?=[,;()]|$)")),
    ("id=", "user", re.compile(r"\b(?:uid|gid|groups)=[0-9]{1,10}\(([A-Za-z_][\w.-]{0,63})\)")),
    ("host", "host", re.compile(r"\b(?:resolve hostname|resolve host|connect to host|jump host) ([\w.-]+)")),
    # Descriptions of nodes and switches as infiniband-diags print them: of one word, or of a host and its adapter.
    (
        '"',
        "host",
        re.compile(
            r"(?:0x[0-9a-f]{16}(?: ports [0-9]{1,4})?|\[ {0,4}\]|Errors for|lid [0-9]{1,6}-[0-9]{1,6}"
            r'|"[\s\[\]()0-9a-f]{1,60}#) {1,4}" {0,40}([A-Za-z][\w.-]{0,63})(?="| (?:mlx|hfi|bnxt|HCA))'
        ),
    ),
    ("CA: ", "host", re.compile(r"\bCA: ([A-Za-z][\w.-]{0,63}) (?:mlx|hfi|bnxt|HCA)")),
    (
        "escription",
        "host",
        re.compile(r"\bDescription:?\.{3,40} ?([A-Za-z][\w.-]{0,63})(?=\s*$| (?:mlx|hfi|bnxt|HCA))", re.M),
    ),
    ("MF0;", "host", re.compile(r"\bMF0;([\w.-]+):")),
    ("ob", "job", re.compile(r"\b(?:JobName=|--job-name[= ]|SLURM_JOB_NAME=|job name:? )['\"]?([\w.+-]+)")),
    ("-n", "job", re.compile(r"(?:^|\s)(?:-n|--namespace)[= ]([a-z][a-z0-9-]*)")),
    (
        "",
        "serial",
        re.compile(
            r"(?:[Ss]erial(?: ?[Nn]umber)?|SERIAL|S/N|\bSN|(?i:service tag))['\"]?[ \t]{0,9}[:= \t][ \t]{0,9}['\"]?"
            r"(?=[A-Z0-9-]*[0-9])([A-Z0-9-]{5,40})\b"
        ),
    ),
)


class Identities:
    """The names in a session, all gathered before any is replaced: texts may name what a later field explains."""

    def __init__(self, words: tuple[str, ...] = ()) -> None:
        self.hosts: set[str] = set()  #: Names of hosts and switches, in lower case.
        #: Kinds of other names (``user``, ``job``, ``serial``, ``word``), in lower case.
        self.names: dict[str, str] = {word.lower(): "word" for word in words}
        #: Values of GUIDs and MAC addresses of fields, which texts may write without their marks.
        self.guids: set[int] = set()
        self.addresses: set[int] = set()  #: IPv4 addresses of fields, which texts may write in hexadecimal.
        self.free: dict[str, int] = {}  #: Numbers of texts that users or their commands wrote, by what they are.

    def gather(self, value: Any, field: str = "") -> None:
        """Take the names of a JSON value, which is in a field."""
        if isinstance(value, dict):
            self._of_object(value)
            for key, inner in value.items():
                if field in ("notes", "placements"):
                    self._host(key)
                self._text(key)
                self.gather(inner, key)
        elif isinstance(value, list):
            for inner in value:
                self.gather(inner, field)
        elif isinstance(value, str) and value:
            self._field(value, field)
            self._text(value)
        elif isinstance(value, int) and not isinstance(value, bool) and is_serial(field):
            self._name("serial", str(value))

    def _of_object(self, value: dict[str, Any]) -> None:
        for kind, what in (("acknowledged", "note"), ("output", "output of a command")):
            if value.get("kind") == kind:
                self.free[what] = self.free.get(what, 0) + 1
        name = value.get("name")
        # A port of the fabric, or a node of a JSON snapshot.
        if isinstance(name, str) and ("guid" in value or "backend" in value):
            self._host(name.split()[0] if name.split() else "")

    def _field(self, value: str, field: str) -> None:
        if field in _HOST_FIELDS:
            # Descriptions of ports of the fabric have more words: "n060 mlx5_0".
            self._host(value.split()[0])
        elif field == "moved_from":
            # An endpoint, a link or a port in an earlier session: "n012:3", "n012:3 link 7", "n012 mlx5_0/1".
            self._host(value.split()[0].partition(":")[0])
        elif field == "stayed_after":
            self._name("serial", value)
        elif field in ("src", "dst"):
            # An endpoint, or a node; "all" is neither.
            node, _, index = value.rpartition(":")
            if index.isdigit():
                self._host(node)
            elif any(char.isdigit() for char in value):
                self._host(value)
        elif field in _USER_FIELDS:
            self._name("user", value)
        elif field in _JOB_FIELDS:
            self._name("job", value)
        elif is_serial(field):
            self._name("serial", value)
        elif "guid" in field:
            self.guids.update(_hexadecimal(value))
        elif field == "mac":
            self.guids.update(_hexadecimal(value.replace(":", "")))
        elif "addr" in field and _IPV4.fullmatch(value):
            self.addresses.add(int(ipaddress.IPv4Address(value)))

    def _text(self, text: str) -> None:
        for mark, kind, pattern in _TEXTS:
            if mark in text:
                for found in pattern.finditer(text):
                    if kind == "host":
                        self._host(found[1])
                    else:
                        self._name(kind, found[1])

    def _host(self, name: str) -> None:
        name = name.lower().rstrip(".")
        label, _, domain = name.partition(".")
        if not _HOST.fullmatch(name) or label in _NOBODY:
            return
        self.hosts.add(name)
        if domain and not label.isdigit():
            self.hosts.add(label)
            if "." in domain:
                self.hosts.add(domain)

    def _name(self, kind: str, name: str) -> None:
        name = name.lower()
        if kind == "serial":
            if len(name) >= 4 and any(char.isdigit() for char in name) and set(name) != {"0"}:
                self.names.setdefault(name, kind)
        elif _NAME.fullmatch(name) and len(name) > 1 and name not in _NOBODY:
            self.names.setdefault(name, kind)

    def runs(self) -> set[str]:
        return {run for name in (*self.hosts, *self.names) for run in re.findall("[a-z]+", name)}


def is_serial(field: str) -> bool:
    return "serial" in field.lower() or field in ("sn", "asset_tag")


def _hexadecimal(text: str) -> Iterator[int]:
    plain = text.lower().removeprefix("0x").replace(":", "")
    if plain and all(char in "0123456789abcdef" for char in plain) and len(plain) <= 16:
        yield int(plain, 16)
