"""Parts of the screen that the first frame does not need.

The app imports this module once the first frame is on the terminal, so that no key waits for an import.
"""

from textual.screen import Screen

from fabtui.export.csv import write_csv
from fabtui.screen.context import ViewName
from fabtui.screen.keymap import check_keys, commands, key_owners
from fabtui.screen.views.dialogs import ConfirmScreen, fit
from fabtui.screen.views.findings import FindingsScreen, PreflightScreen
from fabtui.screen.views.help import HelpScreen, views_of
from fabtui.screen.views.jump import JumpScreen, targets_of
from fabtui.screen.views.node.screen import NodeScreen
from fabtui.screen.views.nodes import NodesScreen
from fabtui.screen.views.pair.screen import PairScreen
from fabtui.session.feeds.baseline import read_baseline

__all__ = [
    "VIEWS",
    "ConfirmScreen",
    "HelpScreen",
    "JumpScreen",
    "NodeScreen",
    "PairScreen",
    "check_keys",
    "commands",
    "fit",
    "key_owners",
    "read_baseline",
    "targets_of",
    "views_of",
    "write_csv",
]

#: Views of the session, by name.
VIEWS: dict[ViewName, type[Screen[None]]] = {
    "nodes": NodesScreen,
    "preflight": PreflightScreen,
    "findings": FindingsScreen,
}
