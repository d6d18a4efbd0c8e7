"""From arguments to the screen."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabtui.config.file import ConfigFile
    from fabtui.screen.settings import ScreenSettings
    from fabtui.session.feeds.base import Feed


def screen_settings(
    args: argparse.Namespace, config: ConfigFile, title: str, csv: Path | None = None
) -> ScreenSettings:
    """Return the settings of the screen; what nobody gave is left to the screen's own defaults.

    Args:
        args: The arguments.
        config: The user's settings, which hold where the arguments say nothing.
        title: What is looked at, as the user named it.
        csv: Where the snapshot goes that a key writes; None: a new file in the working folder.

    Raises:
        InputError: The baseline cannot be read.
    """
    from fabtui.screen.settings import ScreenSettings

    names = ("theme", "colors", "ascii")
    own = {name: config.values[f"screen.{name}"].value for name in names if f"screen.{name}" in config.values}
    baseline = _baseline(args)
    given = {name: value for name, value in vars(args).items() if name in names}
    return ScreenSettings(
        title=title,
        csv=csv,
        baseline=baseline,
        theme_must_be="theme" in given,
        keys={name: str(found.value) for name, found in config.keys.items()},
        problems=tuple(config.told(problem) for problem in config.problems),
        config=config.path,
        **{**own, **given},
    )


def _baseline(args: argparse.Namespace) -> Path | None:
    """Return the path of the baseline, known to be readable, or None."""
    from fabtui.errors import InputError

    if "baseline" not in args:
        return None
    path = Path(args.baseline).expanduser()
    try:
        path.open("rb").close()
    except OSError as error:
        raise InputError(f"--baseline: cannot read {path}: {error.strerror}") from None
    return path


def show(make_feed: Callable[[], Feed], settings: ScreenSettings, instead: str) -> int:
    """Run the app on a feed that is made after its first frame; returns the exit code.

    Args:
        make_feed: Makes the feed.
        settings: How the screen looks.
        instead: The command that does without a screen.

    Raises:
        InputError: There is no terminal to show anything on.
    """
    from fabtui.errors import InputError
    from fabtui.screen.launch import NoScreen, run_app

    try:
        return run_app(make_feed, settings)
    except NoScreen as error:
        raise InputError(f"{error}; without a screen: {instead}") from None
