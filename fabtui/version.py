"""Version of fabtui, for modules that `fabtui` loads on first use and that therefore cannot import it."""

__version__ = "0.2.0"
