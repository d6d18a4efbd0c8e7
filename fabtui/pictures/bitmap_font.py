"""A 5x7 dot-matrix font of printable ASCII for PNGs, which have no text of their own."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Dots = np.ndarray[Any, np.dtype[np.bool_]]

#: Height of a glyph with its descender, and width of a glyph with the space after it.
HEIGHT, ADVANCE = 8, 6
#: Five columns per character from the space to the tilde, a byte each; the lowest bit is the top.
_COLUMNS = bytes.fromhex(
    "0000000000 00005F0000 0007000700 147F147F14 242A7F2A12 2313086462 3649552250 0005030000 001C224100 0041221C00 "
    "14083E0814 08083E0808 0050300000 0808080808 0060600000 2010080402 3E5149453E 00427F4000 4261514946 2141454B31 "
    "1814127F10 2745454539 3C4A494930 0171090503 3649494936 064949291E 0036360000 0056360000 0814224100 1414141414 "
    "0041221408 0201510906 324979413E 7E1111117E 7F49494936 3E41414122 7F4141221C 7F49494941 7F09090901 3E4149497A "
    "7F0808087F 00417F4100 2040413F01 7F08142241 7F40404040 7F020C027F 7F0408107F 3E4141413E 7F09090906 3E4151215E "
    "7F09192946 4649494931 01017F0101 3F4040403F 1F2040201F 3F4038403F 6314081463 0708700807 6151494543 007F414100 "
    "0204081020 0041417F00 0402010204 4040404040 0001020400 2054545478 7F48444438 3844444420 384444487F 3854545418 "
    "087E090102 18A4A4A47C 7F08040478 00447D4000 4080847D00 7F10284400 00417F4000 7C04180478 7C08040478 3844444438 "
    "FC24242418 18242424FC 7C08040408 4854545420 043F444020 3C4040207C 1C2040201C 3C4030403C 4428102844 1CA0A0A07C "
    "4464544C44 0008364100 00007F0000 0041360800 1008081008"
)


def text_dots(text: str) -> Dots:
    """Return a line of text as dots, `HEIGHT` high; characters without a glyph are question marks."""
    if not text:
        return np.zeros((HEIGHT, 0), dtype=bool)
    return np.concatenate([_glyph(character) for character in text], axis=1)


@cache
def _glyph(character: str) -> Dots:
    if character == "\u2026":
        return np.concatenate([_glyph(".")[:, 1:4]] * 2, axis=1)
    known = " " <= character <= "~"
    first = 5 * (ord(character if known else "?") - ord(" "))
    columns = _COLUMNS[first : first + 5] + b"\0"
    bits = np.unpackbits(np.frombuffer(columns, dtype=np.uint8)[None, :], axis=0, bitorder="little")
    found: Dots = bits.astype(bool)
    return found
