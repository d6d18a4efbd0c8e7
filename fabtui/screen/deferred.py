"""Parts of the screen that the first frame does not need.

The app imports this module once the first frame is on the terminal, so that no key waits for an import.
"""

from textual.screen import Screen

from fabtui.diagnosis.diagnosis import diagnose as diagnose
from fabtui.export.csv import write_csv as write_csv
from fabtui.model.exit_codes import exit_code as exit_code
from fabtui.model.exit_codes import exit_code_if_left as exit_code_if_left
from fabtui.model.recording import read_events as read_events
from fabtui.report.contents import write_report as write_report
from fabtui.screen.app_actions import login as login
from fabtui.screen.app_actions import write_picture as write_picture
from fabtui.screen.command_table import CommandTable as CommandTable
from fabtui.screen.context import ViewName
from fabtui.screen.keymap import check_keys as check_keys
from fabtui.screen.keymap import commands as commands
from fabtui.screen.keymap import key_owners as key_owners
from fabtui.screen.notifier import Notifier as Notifier
from fabtui.screen.terminal.internals import notify_terminal as notify_terminal
from fabtui.screen.views.command_line import CommandLine as CommandLine
from fabtui.screen.views.dialogs import ConfirmScreen as ConfirmScreen
from fabtui.screen.views.dialogs import ask_in_app as ask_in_app
from fabtui.screen.views.dialogs import fit as fit
from fabtui.screen.views.findings import FindingsScreen as FindingsScreen
from fabtui.screen.views.findings import PreflightScreen
from fabtui.screen.views.help import HelpScreen as HelpScreen
from fabtui.screen.views.help import views_of as views_of
from fabtui.screen.views.job import JobScreen as JobScreen
from fabtui.screen.views.job import JobsScreen
from fabtui.screen.views.job import job_beside as job_beside
from fabtui.screen.views.jump import JumpScreen as JumpScreen
from fabtui.screen.views.jump import targets_of as targets_of
from fabtui.screen.views.node import NodeScreen as NodeScreen
from fabtui.screen.views.nodes import NodesScreen
from fabtui.screen.views.pair import PairScreen as PairScreen
from fabtui.screen.views.topology import TopologyScreen
from fabtui.session.feeds.baseline import read_baseline as read_baseline
from fabtui.session.feeds.replay import ReplayFeed as ReplayFeed

#: Views of the session, by name, that need nothing but the app.
VIEWS: dict[ViewName, type[Screen[None]]] = {
    "nodes": NodesScreen,
    "preflight": PreflightScreen,
    "findings": FindingsScreen,
    "topology": TopologyScreen,
    "jobs": JobsScreen,
}
