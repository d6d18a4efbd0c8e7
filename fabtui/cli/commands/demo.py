"""``fabtui demo``: films of what fabtui finds, recorded ones and one that is made on this machine."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from importlib.util import find_spec

from fabtui.cli.commands import app, replay
from fabtui.cli.options_from_args import recording_path
from fabtui.config.file import read_config
from fabtui.errors import InputError
from fabtui.lab.network import missing
from fabtui.presentation.wrapping import aligned

HELP = """\
Play a film: a recorded session, or a lab on this machine whose cable is pulled and plugged in again.

examples:
  fabtui demo                                  list the films
  fabtui demo cable                            live, 40 s: a cable is pulled, named, and plugged in again
  fabtui demo faults                           four faults on four H200s, recorded
  fabtui demo job --speed 2                    a job that hangs, recorded

The film of the cable needs root, for a network of namespaces. Without root, a lab on loopback addresses has a pair
that is broken from the start; where PyTorch is missing for that, the film is played as it was recorded. The lab ends
with the film, however that ends.

exit codes: those of the app; 0 for the list; 2 bad usage or input
"""

CABLE = "cable"
#: Films by name, or by a part of the name of their recording.
FILMS = {
    CABLE: "live: a cable of a lab here is pulled, named and plugged in again, 40 s",
    "faults": "recorded: four planted faults on four H200s",
    "job": "recorded: a training on four H200s hangs, and whom it waits for",
    "h200x4-lab-2x2": "recorded: four healthy H200s",
}
#: Recording of the film of the cable.
_RECORDED = "lab-4x2-cable"
#: A lab with a broken pair, where networks cannot be made.
_LOOPBACK = "2x4", ["n000:1>n001:2=drop"]


def execute(args: argparse.Namespace) -> int:
    if "film" not in args:
        print("\n".join(aligned([[f"fabtui demo {name}", text] for name, text in FILMS.items()], (0, 1), indent="")))
        return 0
    if args.film != CABLE:
        args.demo = args.film
        return replay.execute(args)
    if why := missing():
        if find_spec("torch") is None:
            print(f"this is the film as it was recorded: {why}", file=sys.stderr)
            args.demo = _RECORDED
            return replay.execute(args)
        print(f"a lab on loopback with a broken pair, in place of a pulled cable: {why}", file=sys.stderr)
        args.lab, args.lab_fault = _LOOPBACK
    if "speed" in args:
        raise InputError("--speed is for recorded films; this one is made while you watch")
    if why:
        return app.execute(args)
    return _cable(args)


def _cable(args: argparse.Namespace) -> int:
    config = read_config(args)
    film = import_module("fabtui.session.feeds.cable_film")
    record = recording_path(vars(args), [CABLE])
    settings = app.screen_settings(args, config, "demo cable")._replace(recorded=record is not None)
    code, feed = app.show(lambda: film.CableFilm(record), settings, "fabtui lab up, then fabtui run")
    if feed is not None:
        app.print_end(feed, record, code)
    return code
