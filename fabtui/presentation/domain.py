"""The DNS domain that node names share, which labels omit."""

from __future__ import annotations

from collections.abc import Iterable


def common_domain(names: Iterable[str]) -> str:
    """Return the domain that several node names share, with its first dot, or ""; labels omit it."""
    # The first part of a name is never part of the domain.
    parts = [name.split(".") for name in dict.fromkeys(names)]
    common: list[str] = []
    for at in zip(*(reversed(one[1:]) for one in parts), strict=False):
        if len(parts) < 2 or len(set(at)) > 1:
            break
        common.insert(0, at[0])
    # IP addresses may share their last parts as well.
    has_letters = any(character.isalpha() for part in common for character in part)
    return "." + ".".join(common) if has_letters and all(one[0] for one in parts) else ""


def without(domain: str, text: str) -> str:
    """Return a text without the common domain of node names; not for commands to be typed."""
    return text.replace(domain, "") if domain else text
