"""Interface of the app for views and widgets, and the user settings of the screen; importable without Textual.

Views and widgets depend on this protocol, not on the app, so that they can be understood and tested without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from fabtui.config.file import SettingRow
    from fabtui.config.options import OptionSpec
    from fabtui.diagnosis.finding import Finding
    from fabtui.diagnosis.preflight.checks import Preflight
    from fabtui.model.layers import Layer
    from fabtui.model.session_model import Model
    from fabtui.presentation.cell_levels import Glyphs
    from fabtui.presentation.job_board import JobBoard
    from fabtui.screen.session_diagnosis import SessionDiagnosis
    from fabtui.session.feeds.base import Feed


class ScreenSettings(NamedTuple):
    """User settings of the screen."""

    theme: str | None = None  #: Name of a theme file or of a Textual theme; None for the default.
    colors: str = "auto"  #: Number of colours of the terminal: ``auto``, ``24`` (bits), ``256``, ``16`` or ``none``.
    ascii: bool = False
    notify: str = "bell"  #: How the terminal reports what has happened: ``off``, ``bell``, ``osc9`` or ``osc777``.
    title: str = ""  #: Nodes or file as the user named them, for example ``n[060-061]``.
    csv: Path | None = None  #: File that `e` writes; None for ``fabtui-<UTC time>.csv`` in the working folder.
    baseline: Path | None = None  #: Earlier session to compare with.
    exit_on_end: bool = False
    theme_must_be: bool = True  #: An invalid theme is an error, not only a warning.
    keys: Mapping[str, str] = MappingProxyType({})  #: Keys by binding id, from the user's settings.
    problems: tuple[str, ...] = ()  #: Errors in the user's settings, one line each.
    config: Path | None = None  #: Path of the user's settings.
    in_effect: tuple[SettingRow, ...] = ()  #: All settings as they were at the start.
    recorded: bool = False
    #: Name of the view that is opened when the session has begun (`fabtui.screen.context.ViewName`), or "".
    first_view: str = ""


class StartChoice(NamedTuple):
    """A line of the start screen: the words of a command, or a node set that is put into its line of nodes."""

    label: str
    note: str = ""
    words: tuple[str, ...] = ()
    fill: str = ""


class StartSection(NamedTuple):
    """Choices of a kind on the start screen.

    ``read`` returns them, or why there are none. It is called in a thread, as it may block.
    """

    key: str
    name: str
    read: Callable[[], Sequence[StartChoice] | str]


#: Names of the views that `AppContext.open_view` opens.
ViewName = Literal["nodes", "preflight", "findings", "topology", "job", "logs", "jobs", "settings", "history", "bisect"]
Severity = Literal["information", "warning", "error"]


class AppContext(Protocol):
    """State and services that the app offers to views and widgets."""

    model: Model
    feed: Feed | None  #: Feed of the session; None until the first frame is on the terminal.
    settings: ScreenSettings
    glyphs: Glyphs

    @property
    def findings(self) -> SessionDiagnosis: ...
    #: Layer of the grid.
    @property
    def layer(self) -> Layer: ...
    #: Lasting warnings.
    @property
    def badges(self) -> list[str]: ...
    def preflight(self) -> Preflight:
        """Return the preflight; a frame follows if it does not include the latest probe results."""

    def job(self) -> JobBoard | None:
        """Return the running job, None without evidence; a frame follows if it lacks the latest evidence."""

    def bad_pairs(self) -> tuple[int, bool]:
        """Return the number of bad pairs found so far, and True if every pair has been checked."""

    def elapsed(self) -> float:
        """Return the duration of the session (s)."""

    def now(self) -> float:
        """Return the time of the session (s since the epoch); in a replay the time of the recording."""

    def notify(self, message: str, *, severity: Severity = "information", timeout: float | None = None) -> None: ...
    def request_draw(self) -> None:
        """Schedule the next frame; cheap enough to be called for every event."""

    def draw_within(self, seconds: float) -> None: ...
    def run_worker(self, work: Coroutine[Any, Any, None], name: str, *, exit_on_error: bool) -> object: ...
    def copy(self, text: str) -> None: ...
    def selected_pair(self) -> tuple[int, int] | None:
        """Return the endpoint numbers of the pair under the cursor of the grid, or None."""

    def open_node(self, node: str) -> None: ...
    def open_view(self, name: ViewName) -> None: ...
    def run_step_of(self, finding: Finding) -> None:
        """Show the findings, and run the first next step of one of them."""

    def open_job(self, job: str) -> None: ...
    def write_report(self, path: Path) -> object: ...
    async def replay(self, file: str) -> Callable[[], object]:
        """Return what plays a recording in place of this session; `InputError` if the file is not a recording."""

    setting_texts: dict[str, str]  #: Values of all settings that were changed on the screen, as text.

    @property
    def unsaved_settings(self) -> dict[str, str]:
        """Changed settings that are in no file yet."""

    def change_setting(self, spec: OptionSpec, text: str) -> None:
        """Change a setting of this session; `InputError` if it does not take the value."""

    def save_settings(self) -> object: ...
    def outline(self, label: str, pairs: Collection[tuple[str, str]]) -> None: ...
    def show_pair(self, source: int, destination: int) -> bool:
        """Go back to the grid and its pair of two endpoint numbers; return False if the grid lacks it."""


def context_of(node: DOMNode) -> AppContext:
    return cast("AppContext", node.app)


def part(name: str) -> Any:
    """Return what ``module:name`` names in the package; its module, such as one of a view, is imported on first use."""
    module, _, kind = name.partition(":")
    return getattr(import_module(f"fabtui.{module}"), kind)
