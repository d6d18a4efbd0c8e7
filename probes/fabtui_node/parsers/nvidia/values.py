"""Values and errors that NVIDIA's tools print: numbers with units, states, and messages in place of a value."""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Tuple

from fabtui_node.parsers.base import Notes

#: Field values that mean that the GPU has no such value; not a fault.
NOTHING = {"", "n/a", "not supported", "not available", "none", "unknown", "-", "off", "not found", "deprecated"}
#: Parts of what is written instead of a value when a GPU does not answer.
FAILURES = ("err!", "gpu is lost", "requires reset", "unknown error", "fallen off", "insufficient permissions")

_NUMBER = re.compile(r"([+-]?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s{0,4}(.{0,20})", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII | re.IGNORECASE)
_COMMAND = re.compile(
    r"\s{0,8}(?:\[?[^\s#$]{0,60}\]?)?\s{0,2}[#$>]\s{0,4}(?:sudo )?(\S{0,60}nvidia-smi|dcgmi)(?: (.{0,4000}))?"
)

#: Meanings of the bits of ``clocks_event_reasons.active`` (``clocks_throttle_reasons`` before 535), in NVML's order.
REASONS: Tuple[str, ...] = (
    *("idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown"),
    *("hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting"),
)

_BUS = r"(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])"
# "GPU 0000:02:00.0", "GPU0: 0000:02:00.0", "GPU2" and "gpu 0000:02:00.0": the form changed with the drivers.
_HANDLE = (
    r"Unable to determine the device handle for gpu ?(?P<index>[0-9]{1,3}(?![0-9a-f:]*\.))?"
    r"(?:: ?(?=[0-9a-f]{4,8}:))? ?(?:" + _BUS + r")?: ?"
)

# Messages are wrapped by narrow consoles, so they are looked for in text whose space has been squeezed.
_ERRORS = (
    ("gpu_lost", _HANDLE + r"(?P<why>(?:the )?GPU is lost)"),
    (
        "device_handle",
        _HANDLE + r"(?P<why>(?!(?:the )?GPU is lost)[^.: ][^.:]{0,80}?)(?=[.:]|$| Unable| NVIDIA| GPU [0-9]| [#$] )",
    ),
    ("driver", r"(?P<why>NVIDIA-SMI has failed because it couldn.?t communicate with the NVIDIA driver)"),
    (
        "version",
        r"(?P<why>Failed to initialize NVML: (?:Driver/library version mismatch|[A-Za-z][A-Za-z/ ]{0,50}[A-Za-z]))"
        r"(?= NVML library| NVIDIA-SMI| GPU |[.:]|$| [#$] )",
    ),
    ("library", r"(?P<why>NVIDIA-SMI couldn.?t find libnvidia-ml\.so(?:\.[0-9])? library in your system)"),
    ("no_devices", r"(?P<why>No devices were found)"),
    ("requires_reset", r"(?P<why>(?:NVML: )?GPU requires reset)"),
    ("fallen_off", r"(?P<why>GPU has fallen off the bus)(?! or)"),
)

#: Words one of which is in each of these messages.
_ERROR_WORDS = ("device", "nvidia-smi", "nvml", "requires", "fallen")


def bare(word: str) -> str:
    """Return a value without the brackets that mark one which is not there: ``[N/A]`` is ``N/A``."""
    word = word.strip()
    if len(word) > 2 and (word[0], word[-1]) in (("[", "]"), ("<", ">")):
        word = word[1:-1].strip()
    return word


def failure(word: str) -> Optional[str]:
    """Return the word if it means that the GPU does not answer or may not be asked, else None."""
    low = word.lower()
    return bare(word)[:80] if any(part in low for part in FAILURES) else None


def field_text(word: str) -> Optional[str]:
    """Return a field's text, or None if it means that there is no value."""
    word = bare(word)
    return None if word.lower() in NOTHING or failure(word) else word[:200]


def number(word: str) -> Optional[float]:
    """Return the number that a field begins with, ignoring its unit, or None."""
    match = _NUMBER.fullmatch(bare(word))
    if not match or (match[2] and match[2][0] in "0123456789.xX:-"):
        return None
    return float(match[1])


def whole(word: str) -> Optional[int]:
    """Return the integer that a field begins with, ignoring its unit, or None."""
    match = _NUMBER.fullmatch(bare(word))
    if not match or not _WHOLE.fullmatch(match[1]):
        return None
    rest = match[2]
    return None if rest and rest[0] in "0123456789.:-" else int(match[1])


def unit(word: str) -> Optional[str]:
    """Return the unit after a number, or None."""
    match = _NUMBER.fullmatch(bare(word))
    return match[2].strip() or None if match else None


def truth(word: str) -> Optional[bool]:
    """Return a yes or no in any of the words used for it, None for anything else."""
    low = bare(word).lower()
    if low in ("yes", "enabled", "active", "on", "true"):
        return True
    return False if low in ("no", "disabled", "not active", "off", "false") else None


def reasons(word: str) -> Optional[List[str]]:
    """Return the names of the bits in a mask of clock event reasons, None where it is not a mask."""
    word = bare(word)
    return reason_names(int(word, 16)) if _HEXADECIMAL.fullmatch(word) else None


def reason_names(mask: int) -> List[str]:
    """Return the names of the bits in a mask of clock event reasons."""
    names = [name for at, name in enumerate(REASONS) if mask >> at & 1]
    rest = mask >> len(REASONS) << len(REASONS)
    return [*names, "0x%x" % rest] if rest else names


def snake(label: str) -> str:
    """Return a printed label as a name: ``SRAM Uncorrectable SEC-DED`` is ``sram_uncorrectable_sec_ded``."""
    return re.sub("[^a-z0-9]+", "_", label.lower()).strip("_")[:60]


def command_line(line: str) -> Optional[str]:
    """Return the arguments in a line that is a prompt and an NVIDIA command (``$ nvidia-smi topo -m``), else None."""
    match = _COMMAND.fullmatch(line.rstrip()[:4000])
    return (match[2] or "").strip() if match else None


def is_noise(line: str) -> bool:
    """Return True for a line not of the command: a prompt, a recorded exit status, dots for omitted lines."""
    word = line.strip()
    return not word or word in ("[...]", "...", "(...)") or word.startswith("# rc=") or command_line(line) is not None


def pick(found: Dict[str, str], *names: str) -> str:
    """Return the first of several fields that is there, an empty text if none is."""
    return next((found[name] for name in names if name in found), "")


def parse_errors(text: str) -> List[Dict[str, Optional[str]]]:
    """Return ``[{"kind", "bus", "index", "reason"}]`` for the failures that ``nvidia-smi`` reports in its output.

    - ``gpu_lost``, ``device_handle`` (one GPU cannot be asked), ``requires_reset``, ``fallen_off``: of one GPU.
    - ``driver`` (none is running), ``library`` (there is no NVML), ``no_devices``.
    - ``version``: library and driver do not match, or NVML failed to initialise.

    ``bus`` is the PCI address and ``index`` the number, for the kinds that have one.
    """
    folded = text.lower()
    if not any(word in folded for word in _ERROR_WORDS):
        return []
    squeezed = " ".join(text.split())
    errors: List[Dict[str, Optional[str]]] = []
    for kind, pattern in _ERRORS:
        for match in re.finditer(pattern, squeezed, re.ASCII | re.IGNORECASE):
            groups = match.groupdict()
            error = {"kind": kind, "bus": groups.get("bus"), "index": groups.get("index")}
            error["reason"] = groups["why"].strip()
            if error not in errors and len(errors) < 256:
                errors.append(error)
    return errors


def problem_text(error: Dict[str, Optional[str]]) -> str:
    """Return an error of ``parse_errors`` as ``nvidia-smi`` prints it, so that the catalogue of errors finds it."""
    gpu = error["bus"] or error["index"]
    where = "Unable to determine the device handle for GPU %s: " % gpu if gpu else ""
    return where + str(error["reason"])


def complain(text: str, notes: Notes) -> List[Dict[str, Optional[str]]]:
    """Return ``parse_errors`` of a text, and make each a warning."""
    errors = parse_errors(text)
    for error in errors:
        notes.warn(problem_text(error))
    return errors
