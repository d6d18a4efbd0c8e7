"""What was found on a node, ready to be asked: nothing of its shape is relied on, no text is handed out uncleaned."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fabtui.sanitize import one_line

#: Longer texts are no facts that people compare.
LONGEST = 160
#: So many things of a kind are told by name where they differ from the others of their node.
_NAMED = 3

Value = str | int | float | bool | None


class Looked(NamedTuple):
    """A node as it was found.

    Attributes:
        name: Its name.
        inventory: What the inventory probe gave, or nothing.
        looks: What each probe gave, by its name.
    """

    name: str
    inventory: Mapping[str, Any]
    looks: Mapping[str, Mapping[str, Any]]

    def part(self, *path: str) -> Any:
        """Return what the inventory has at a path of names, None where there is nothing."""
        return field(self.inventory, *path)

    def seen(self, probe: str, *path: str) -> Any:
        """Return what a probe gave at a path of names, None where there is nothing."""
        return field(self.looks.get(probe), *path)


def field(value: Any, *path: str) -> Any:
    """Return a field of a field, None where there is none."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def dicts(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; nothing when it is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def text(value: Any) -> str | None:
    """Return a text, cleaned; None for what is no text, or an empty one."""
    if not isinstance(value, str):
        return None
    return _cleaned(value) if len(value) <= LONGEST else one_line(value, LONGEST)


# Nodes of a kind say the same in the same words.
@functools.lru_cache(maxsize=8192)
def _cleaned(value: str) -> str | None:
    return one_line(value, LONGEST) or None


def number(value: Any) -> int | float | None:
    """Return a number; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    return value


def yes(value: Any) -> bool | None:
    """Return a truth; None for what is none."""
    return value if isinstance(value, bool) else None


def single(value: Any) -> Value:
    """Return a text, a truth or a number; None for anything else."""
    return text(value) if isinstance(value, str) else yes(value) if isinstance(value, bool) else number(value)


def host_text(*path: str) -> Callable[[Looked], Value]:
    """Return what takes a text at a path of names out of what the probe ``host`` gave."""
    return lambda node: text(node.seen("host", *path))


def host_number(*path: str) -> Callable[[Looked], Value]:
    """Return what takes a number at a path of names out of what the probe ``host`` gave."""
    return lambda node: number(node.seen("host", *path))


def counted(values: Iterable[Any]) -> str | None:
    """Return how many there are of each, the most frequent first: ``8 x H200``; None for nothing."""
    found: dict[str, int] = {}
    for value in values:
        word = text(value) or "unknown"
        found[word] = found.get(word, 0) + 1
    return ", ".join(f"{many} x {word}" for word, many in sorted(found.items(), key=lambda f: -f[1])) or None


def spread(values: Iterable[tuple[Any, Any]], unit: str = "") -> str | None:
    """Return what things of a kind have in common, and which differ: ``400, 200 on mlx5_3``; None for nothing.

    How many there are is a fact of its own: a node that lost one of them is not to differ in all it has of them.

    Args:
        values: The name and the value of each.
        unit: The unit of the values.
    """
    known = [(text(str(name)) or "?", _word(value, unit)) for name, value in values]
    found: dict[str, list[str]] = {}
    for name, word in known:
        found.setdefault(word, []).append(name)
    if not found or set(found) == {"unknown"}:
        return None
    ranked = sorted(found.items(), key=lambda item: -len(item[1]))
    parts = [ranked[0][0]]
    for word, names in ranked[1:]:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        parts.append(f"{word} on {', '.join(names[:_NAMED])}{more}")
    return one_line(", ".join(parts), LONGEST)


def _word(value: Any, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "unknown" if value is None else text(f"{value} {unit}") or "unknown"
