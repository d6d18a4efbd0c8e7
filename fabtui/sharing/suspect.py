"""Texts of a shared file that still look like an identity or a secret."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter

from fabtui.sharing.rewriter import KINDS, Rewriter

#: Pseudonyms of names, in which they may end: ``user-0a1b2c``.
_PSEUDONYM = re.compile(r"(?:.*\W)?(?:user|job|secret|name|path)-[0-9a-f]{6}(?:/[\w.-]*)?")
#: No pseudonym of letters has one of these.
_VOWEL = re.compile("[aeiouy]", re.IGNORECASE)
#: Kinds whose pseudonyms look like real ones.
UNSEEN = ("mac", "guid", "uuid", "serial")


def suspects(rewriter: Rewriter) -> dict[str, Counter[str]]:
    """Return what a rewriter would replace in a shared file, without pseudonyms, by kind, with the number of places."""
    every = {kind: rewriter.replaced[kind] for kind in KINDS if kind not in UNSEEN}
    remaining = {
        kind: Counter({text: number for text, number in texts.items() if not _is_pseudonym(kind, text)})
        for kind, texts in every.items()
    }
    return {kind: texts for kind, texts in remaining.items() if texts}


def _is_pseudonym(kind: str, text: str) -> bool:
    if kind == "host":
        return not _VOWEL.search(text)
    if kind in ("ipv4", "ipv6"):
        return not ipaddress.ip_address(re.sub("[-_]", ".", text).partition("/")[0]).is_global
    return _PSEUDONYM.fullmatch(text) is not None
