"""Check of the messages that a node sends against their fields and types in ``messages.toml``."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_DECLARED = tomllib.loads(Path(__file__).with_name("messages.toml").read_text("utf-8"))
Fields = dict[str, str]
#: Fields of what a node sends, by ``t``, and of what a rank host sends, by ``op``.
FROM_NODE: dict[str, Fields] = _DECLARED["from_node"]
FROM_RANKS: dict[str, Fields] = _DECLARED["from_ranks"] | {
    name: _DECLARED["report"] | fields for name, fields in _DECLARED["reports"].items()
}
_PLAIN: dict[str, Any] = {"str": str, "int": int, "bool": bool, "float": (int, float)}


def mismatch(message: Mapping[str, Any], fields: Fields) -> str | None:
    """Return the first field of a message that is missing or of the wrong type; None if the message is valid."""
    for declared, kind in fields.items():
        name = declared.removesuffix("?")
        if name in message:
            if not _is_valid(message[name], kind):
                return name
        elif name == declared:
            return name
    return None


def _is_valid(value: Any, kind: str) -> bool:
    if " or " in kind:
        return any(_is_valid(value, one) for one in kind.split(" or "))
    if kind.startswith("list of "):
        return isinstance(value, list) and all(_is_valid(one, kind[8:]) for one in value)
    if kind.startswith("map of "):
        return isinstance(value, dict) and all(_is_valid(one, kind[7:]) for one in value.values())
    if kind.endswith("?"):
        return value is None or _is_valid(value, kind[:-1].strip("()"))
    if kind in _DECLARED["parts"]:
        return isinstance(value, dict) and mismatch(value, _DECLARED["parts"][kind]) is None
    return kind == "any" or (isinstance(value, _PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool)))
