"""What of the user's settings the first frame does not need: keys, themes, and what is wrong with all that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fabtui.sanitize import one_line
from fabtui.screen.themes.watcher import ThemeKeeper

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

#: So many problems are told one by one; fabtui config validate has them all.
_TOLD = 3
_SECONDS = 12.0


class UserSettings:
    """Brings the user's settings into an app.

    Args:
        app: The app, whose theme is chosen at once.

    Raises:
        InputError: The theme cannot be used, and was asked for now rather than in the settings file.
    """

    def __init__(self, app: FabricApp) -> None:
        self._app = app
        self._themes = ThemeKeeper(app)
        problem = self._themes.choose()
        self.problems = [*app.settings.problems, *([f"screen.theme: {problem}"] if problem else [])]

    def use(self) -> None:
        """Use keys and themes, and tell what is wrong."""
        from fabtui.screen.keymap import check_keys

        app = self._app
        usable, wrong = check_keys(app.settings.keys)
        if usable:
            app.set_keymap(usable)
        self.problems += [f'keys."{name}": {text}' for name, text in wrong]
        for text in self.problems[:_TOLD]:
            app.tell(f"settings: {one_line(text, 300)}", bad=True, seconds=_SECONDS)
        self._themes.register_all()
        follow: Callable[[], Awaitable[None]] = self._themes.follow
        app.run_worker(follow, name="themes", exit_on_error=False)

    @property
    def badges(self) -> list[str]:
        """A lasting warning while something is wrong."""
        count = len(self.problems)
        return [f"{count} PROBLEM{'S' * (count > 1)} IN SETTINGS: fabtui config validate"] if count else []
