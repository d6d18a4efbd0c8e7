"""Files of pictures: one file, or a folder with all of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fabtui.config.values import listed
from fabtui.errors import InputError
from fabtui.export.atomic_write import check_writable, write_bytes
from fabtui.export.collectives_table import table_rows
from fabtui.model.layers import Layer, grid_layers
from fabtui.model.session_model import Model
from fabtui.paths import user_path
from fabtui.pictures.busbw import busbw_scene
from fabtui.pictures.connectivity import connectivity_scene
from fabtui.pictures.heatmap import MODES, Mode
from fabtui.pictures.matrix import matrix_scene
from fabtui.pictures.png import png
from fabtui.pictures.scene import Scene
from fabtui.pictures.svg import svg
from fabtui.report.grid import has_values

#: Name of the picture of the collectives, which is no layer's.
CURVES = "curves"
#: Layers that are drawn first where one picture is asked for.
_FIRST = ("p2p", "world")
_WRITERS: dict[str, Callable[[Scene], bytes]] = {"svg": lambda scene: svg(scene).encode(), "png": png}

Files = list[tuple[Path, Callable[[Path], None]]]


class PictureRequest(NamedTuple):
    """Pictures to be written.

    Attributes:
        targets: For each format a file or a folder, and whether it is a folder.
        names: Layers, and `CURVES`; empty for all with results.
        modes: Modes of matrices; empty for both, or ``verdict`` for a file.
    """

    targets: dict[str, tuple[Path, bool]]
    names: list[str]
    modes: tuple[Mode, ...]


def picture_request(args: argparse.Namespace) -> PictureRequest:
    """Return the request of ``--svg``, ``--png``, ``--layer`` and ``--mode``; the files can be written.

    Raises:
        InputError: A file cannot be written, or a value is unknown.
    """
    targets = {kind: _target(kind, getattr(args, kind)) for kind in _WRITERS if kind in args}
    for option in ("layer", "mode"):
        if option in args and not targets:
            raise InputError(f"--{option} chooses pictures: add --svg or --png with a file or a folder")
    known = [*map(str, grid_layers()), CURVES]
    names = listed([args.layer], known, "--layer", "picture") if "layer" in args else []
    return PictureRequest(targets, list(names), tuple(mode for mode in MODES if getattr(args, "mode", None) == mode))


def _target(kind: str, text: str) -> tuple[Path, bool]:
    if text in ("", "-"):
        raise InputError(f"--{kind}: {text!r} names neither a file nor a folder")
    path = user_path(text).absolute()
    if path.suffix.lower() == f".{kind}" and not path.is_dir():
        check_writable(path, f"--{kind}")
        return path, False
    if path.suffix and not path.is_dir() and not text.endswith("/"):
        raise InputError(f"--{kind}: {text!r} should end in .{kind}, or name a folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--{kind}: cannot make the folder {path}: {error.strerror}") from None
    return path, True


def picture_files(model: Model | None, request: PictureRequest) -> Files:
    """Return the files of a request, each with a function that writes it.

    Raises:
        InputError: There is nothing to draw.
    """
    if not request.targets:
        return []
    known = [] if model is None else list(_with_results(model))
    if model is None or not known:
        raise InputError("--svg, --png: the files hold no pairs, pings or collectives: there is nothing to draw")
    for name in request.names:
        if name not in known:
            raise InputError(f"--layer: there are no results in {name}; there are in {', '.join(known)}")
    names = request.names or known
    found: Files = []
    for kind, (path, is_folder) in request.targets.items():
        if not is_folder and len(request.names) > 1:
            raise InputError(f"--layer: {path.name} holds one picture; name a folder for several")
        if not is_folder:
            names = request.names or [name for name in _FIRST if name in known][:1] or known[:1]
        pictures = [(name, mode) for name in names for mode in _modes(model, name, request.modes or MODES)]
        if not pictures:
            raise InputError(f"--mode: there are no values in {', '.join(names)}; use the mode verdict")
        for name, mode in pictures if is_folder else pictures[:1]:
            file = path / f"{name if name == CURVES else f'{name}-{mode}'}.{kind}" if is_folder else path
            found.append((file, partial(_write, model, name, mode, _WRITERS[kind])))
    return found


def _modes(model: Model, name: str, modes: Sequence[Mode]) -> tuple[Mode, ...]:
    """Return those of some modes that a picture has; curves have no modes, and some layers have no values."""
    if name == CURVES:
        return MODES[:1]
    layer = Layer(name)
    measured = (m for m in model.measurements() if m.layer == (layer.spec.shows or layer))
    valued = layer.spec.better is not None and any(m.value is not None for m in measured)
    return tuple(mode for mode in modes if mode == "verdict" or valued)


def _with_results(model: Model) -> Iterator[str]:
    if model.rows:
        yield from (str(layer) for layer in grid_layers() if has_values(model, layer))
    if any(row.bytes for row in table_rows(model)):
        yield CURVES


def _write(model: Model, name: str, mode: Mode, encode: Callable[[Scene], bytes], path: Path) -> None:
    if name == CURVES:
        scene = busbw_scene(model)
    elif (layer := Layer(name)).spec.by_address:
        scene = connectivity_scene(model, layer, mode)
    else:
        scene = matrix_scene(model, layer, mode)
    write_bytes(path, encode(scene))
