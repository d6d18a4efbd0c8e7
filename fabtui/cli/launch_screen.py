"""Start the screen from arguments and settings."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fabtui.config.file import ConfigFile
from fabtui.config.values import readable_file
from fabtui.errors import InputError
from fabtui.screen.launch import NoScreen, run_app
from fabtui.screen.settings import ScreenSettings

if TYPE_CHECKING:
    from fabtui.session.feeds.base import Feed

_NAMES = ("theme", "colors", "ascii", "notify")


def screen_settings(
    args: argparse.Namespace, config: ConfigFile, title: str, csv: Path | None = None
) -> ScreenSettings:
    """Return the settings of the screen; what is not given keeps the screen's defaults.

    ``csv`` is the path of the snapshot that a key writes; None: a new file in the working folder.

    Raises:
        InputError: The baseline cannot be read.
    """
    own = {name: config.values[f"screen.{name}"].value for name in _NAMES if f"screen.{name}" in config.values}
    given = {name: value for name, value in vars(args).items() if name in _NAMES}
    return ScreenSettings(
        title=title,
        csv=csv,
        baseline=readable_file(args.baseline, "--baseline") if "baseline" in args else None,
        theme_must_be="theme" in given,
        keys={name: str(found.value) for name, found in config.keys.items()},
        problems=tuple(config.describe(problem) for problem in config.problems),
        config=config.path,
        **{**own, **given},
    )


def show(make_feed: Callable[[], Feed], settings: ScreenSettings, alternative: str) -> int:
    """Run the app on a feed that is created after the first frame; return the exit code.

    The error names an alternative: the command that needs no terminal.

    Raises:
        InputError: There is no terminal.
    """
    try:
        return run_app(make_feed, settings)
    except NoScreen as error:
        raise InputError(f"{error}; without a screen: {alternative}") from None
