"""All settings with their values, and where these are from."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content

from fabtui.config.file import DEFAULT, ConfigFile, config_path, default_text, setting_named, settings_in_effect
from fabtui.config.options import settings
from fabtui.errors import InputError
from fabtui.presentation.wording import MUTED
from fabtui.sanitize import one_line
from fabtui.screen.context import AppContext
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import TitledScreen
from fabtui.screen.widgets.key_bar import KeyBar
from fabtui.screen.widgets.prompt import Prompt
from fabtui.screen.widgets.sorted_table import Columns, SortedTable, TableCell, TableRow, table_keys
from fabtui.screen.widgets.text_line import TextLine

HEADINGS = ("setting", "value", "from", "meaning")


def setting_rows(context: AppContext) -> list[TableRow]:
    start = context.settings.in_effect or settings_in_effect({}, ConfigFile(config_path()))
    known, texts, unsaved = settings(), context.setting_texts, context.unsaved_settings
    rows = []
    for at, (key, value, where) in enumerate(start):
        spec = known[key]
        if key in texts:
            value = default_text(spec) if texts[key] == DEFAULT else texts[key]
            where = "changed here" if key in unsaved else "changed here, saved"
        choices = f": {', '.join(spec.allowed_in_file)}" if spec.allowed_in_file else ""
        own = where != DEFAULT
        cells = [
            TableCell(key, at, "bold" if own else ""),
            TableCell(one_line(value, 30), value, "$primary" if own else MUTED),
            TableCell(one_line(where, 40), where, "$warning" if key in unsaved else MUTED),
            TableCell(f"{spec.help}{choices}", spec.help, MUTED),
        ]
        rows.append(TableRow(key, cells))
    return rows


class SettingsTable(SortedTable):
    """One line per setting."""

    columns = Columns(HEADINGS, always=frozenset(HEADINGS))
    BINDING_GROUP_TITLE = "Settings table"
    BINDINGS: ClassVar[list[BindingType]] = table_keys("settings", "setting")


class SettingsScreen(TitledScreen):
    """All settings with their values and sources. A change holds for this session, and is kept once it is saved."""

    BINDING_GROUP_TITLE = "Settings"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace,f2", "leave", "settings.back", "back to the previous view", "back", bar=("always",)),
        shortcut("enter", "change", "settings.change", "change the setting", "change", bar=("first",)),
        shortcut("d", "restore", "settings.default", "use the default of the setting", "default"),
        shortcut("w", "save", "settings.save", "write the changed settings into the settings file", "save"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._meaning = TextLine()

    def compose(self) -> ComposeResult:
        yield self.title_line
        yield SettingsTable(self.context.glyphs, id="settings-table")
        yield self._meaning
        yield KeyBar(id="settings-keys")

    @property
    def table(self) -> SettingsTable:
        return self.query_one(SettingsTable)

    def on_mount(self) -> None:
        self.table.focus()
        self.draw()

    def draw(self) -> None:
        if not self.is_mounted or not self.query("#settings-table"):
            return
        context = self.context
        self.table.put(setting_rows(context))
        row = self.table.selected
        self._meaning.show(Content.styled(f" {row.cells[-1].text if row is not None else ''}", MUTED))
        path = context.settings.config
        unsaved = len(context.unsaved_settings)
        changed = f"  {unsaved} changed: w saves" if unsaved else ""
        room = self.size.width // 3
        name = str(path or "")
        right = name if len(name) <= room else f"{context.glyphs.ellipsis}{name[-room:]}"
        self.show_title([(" settings ", "bold"), (changed, "$warning")], [(f"{right} ", MUTED)])

    @on(SettingsTable.Moved)
    def _moved(self) -> None:
        self.draw()

    @on(SettingsTable.Chosen)
    async def action_change(self) -> None:
        if (row := self.table.selected) is not None:
            spec, value, source = setting_named(row.name), row.cells[1].key, row.cells[2].key
            # Defaults of others are descriptions.
            given = source != DEFAULT or spec.allowed_in_file or spec.kind in ("number", "switch")
            choices = f": {', '.join(spec.allowed_in_file)}" if spec.allowed_in_file else ""
            await self.ask(spec.key, f"{spec.help}{choices}", value if given else "")

    @on(Prompt.Given)
    def _value_given(self, message: Prompt.Given) -> None:
        if self._prompt is None or message.purpose == self.FILTER_PROMPT[0]:
            return
        try:
            self.context.change_setting(setting_named(message.purpose), message.text.strip())
        except InputError as error:
            # It stays open.
            message.prevent_default()
            self._prompt.complain(one_line(str(error), 300))

    def action_restore(self) -> None:
        if (row := self.table.selected) is not None:
            self.context.change_setting(setting_named(row.name), DEFAULT)

    def action_save(self) -> None:
        self.context.save_settings()
