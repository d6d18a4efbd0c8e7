"""A probe of the user's own, out of the payload: run, held to a size, judged; whatever it does, one line says so."""

from __future__ import annotations

import importlib
import math
from typing import Any, Dict, List

PACKAGE = "fabtui_own"
#: The most characters and numbers that a probe may give.
MOST = 200000
_DEEPEST = 12
_JUDGEMENTS = 50
_TEXT = 300

Judgement = Dict[str, str]


class RubbishError(Exception):
    """What the probe gave is no value: the message is one line."""


def check(value: Any, left: int = MOST, depth: int = 0) -> int:
    """Return what is left of a size after a value.

    Raises:
        RubbishError: It is too large or too deep, or nothing that a message can say.
    """
    if depth > _DEEPEST:
        raise RubbishError("values within values, more than %d deep" % _DEEPEST)
    if isinstance(value, str):
        left -= len(value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise RubbishError("a %s as a name; names are texts" % type(name).__name__)
            left = check(inner, left - len(name), depth + 1)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            left = check(inner, left, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise RubbishError("%r, which is no number" % value)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise RubbishError("a %s, which is no value" % type(value).__name__)
    elif isinstance(value, int) and abs(value) >= 1 << 63:
        raise RubbishError("a number of more than 63 bits")
    if left <= 0:
        raise RubbishError("more than %d characters" % MOST)
    return left - 1


def _nothing(value: Dict[str, Any]) -> None:
    """Take a part that nobody waits for."""


def _judged(module: Any, value: Dict[str, Any]) -> List[Judgement]:
    judge = getattr(module, "judge", None)
    if judge is None:
        return []
    found = judge(dict(value))
    if not isinstance(found, (list, tuple)):
        raise RubbishError("judge gives a %s, not a list" % type(found).__name__)
    judgements = []
    for one in list(found)[:_JUDGEMENTS]:
        if not isinstance(one, dict):
            raise RubbishError("judge gives a list with a %s in it" % type(one).__name__)
        judgements.append({name: str(one.get(name, ""))[:_TEXT] for name in ("subject", "verdict", "text")})
    return judgements


def _words(module: Any, constant: str) -> Dict[str, str]:
    words = getattr(module, constant, None)
    if not isinstance(words, dict):
        return {}
    return {str(name)[:60]: str(word)[:20] for name, word in list(words.items())[:200]}


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Run the module ``fabtui_own.NAME``, with ``NAME`` the argument ``name``.

    Returns:
        ``{"own": True, "value": {...}, "units": {...}, "compare": {...}, "judged": [...], "problem": text or None}``.
    """
    found: Dict[str, Any] = {"own": True, "value": {}, "units": {}, "compare": {}, "judged": [], "problem": None}
    try:
        module = importlib.import_module(PACKAGE + "." + str(args["name"]))
        value = module.run(dict(args), _nothing, deadline)
        if isinstance(value, str):
            if len(value) > 50 * MOST:
                raise RubbishError("run gives a text of %d characters" % len(value))
            value = module.parse(value)
        if not isinstance(value, dict):
            raise RubbishError("run gives a %s; expected a text for parse, or a dict" % type(value).__name__)
        check(value)
        found["value"] = value
        found["units"], found["compare"] = _words(module, "UNITS"), _words(module, "COMPARE")
        found["judged"] = _judged(module, value)
    except RubbishError as error:
        found["problem"] = str(error)[:_TEXT]
    except (Exception, SystemExit) as error:
        found["problem"] = ("%s: %s" % (type(error).__name__, error))[:_TEXT]
    return found
