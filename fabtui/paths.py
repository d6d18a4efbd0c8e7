"""Where the data folders lie that ship with fabtui: themes and small recordings."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """Return the folder of shipped data of a name (``themes``, ``recordings``).

    In a checkout, an editable install or an unpacked sdist it lies beside the package; a wheel carries it inside, as
    ``fabtui/_themes``. The checkout is asked first, so that an edited file is the one that counts.

    Args:
        name: The folder's name in the repository.

    Returns:
        The folder; it may not exist when the installation is broken.
    """
    root = _PACKAGE.parent
    beside = root / name
    if (root / "pyproject.toml").is_file() and beside.is_dir():
        return beside
    return _PACKAGE / f"_{name}"


def theme_folder() -> Path:
    """Return the folder with the colour ramps and themes that ship with fabtui."""
    return data_folder("themes")


def recordings_folder() -> Path:
    """Return the folder with the recordings of real sessions that ship with fabtui."""
    return data_folder("recordings")


def config_folder() -> Path:
    """Return the folder of the user's settings (``~/.config/fabtui`` on Linux); it may not exist."""
    import platformdirs

    return Path(platformdirs.user_config_dir("fabtui", appauthor=False))


def user_theme_folder() -> Path:
    """Return the folder of the user's own themes; it may not exist."""
    return config_folder() / "themes"


def user_probe_folder() -> Path:
    """Return the folder of the user's own probes; it may not exist."""
    return config_folder() / "probes"
