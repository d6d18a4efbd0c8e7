"""View of the topology: NVLink domains, leaf switches, rails, and nodes with devices, as a tree with verdicts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import ClassVar

from rich.style import Style as RichStyle
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.style import Style
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from fabtui.presentation.topology import Branch, Topology, flat
from fabtui.presentation.wording import MUTED, Part, plain
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import TitledScreen
from fabtui.screen.widgets.key_bar import KeyBar

#: Time (s) between two looks for new verdicts.
_INTERVAL = 1.0


# Without the bindings of Tree, which have no ids.
class TopologyTree(Tree[Branch], inherit_bindings=False):
    """Lines that open and close; those below a line are made when it is opened."""

    DEFAULT_CSS = """
    TopologyTree { height: 1fr; background: transparent; scrollbar-size-vertical: 1; padding: 0 1; }
    TopologyTree:focus { background-tint: transparent; }
    """
    BINDING_GROUP_TITLE = "Topology tree"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("up,k", "cursor_up", "tree.up", "previous line"),
        shortcut("down,j", "cursor_down", "tree.down", "next line"),
        shortcut("right,l", "open(True)", "tree.open", "open the line"),
        shortcut("left,h", "open(False)", "tree.close", "close the line, or go to the one above"),
        shortcut("space", "toggle_node", "tree.toggle", "open or close the line", "open"),
        shortcut("pageup,ctrl+u", "page_up", "tree.page-up", "one screen up"),
        shortcut("pagedown,ctrl+d", "page_down", "tree.page-down", "one screen down"),
        shortcut("home", "scroll_home", "tree.first", "first line"),
        shortcut("end,G", "scroll_end", "tree.last", "last line"),
    ]

    def __init__(self, *, ascii_only: bool) -> None:
        # Before the base class, which asks for the labels.
        self._marks = "+-" if ascii_only else "▸▾"
        self._open: set[str] = set()  #: Keys of the lines that are open.
        self._styles: dict[str, RichStyle] = {}
        super().__init__("", id="topology-tree")
        self.show_root = False
        # The guides have no ASCII form.
        self.show_guides = not ascii_only
        self.auto_expand = False

    def put(self, roots: list[Branch], *, open_path: bool) -> None:
        here = self.cursor_node.data.key if self.cursor_node is not None and self.cursor_node.data else ""
        self._styles.clear()
        self.clear()
        self.root.expand()
        self._fill(self.root, roots, open_path)
        lines = (self.get_node_at_line(line) for line in range(self.last_line + 1))
        at = next((node for node in lines if node is not None and node.data and node.data.key == here), None)
        self.move_cursor(at or self.get_node_at_line(0))

    def _fill(self, above: TreeNode[Branch], branches: list[Branch], open_path: bool) -> None:
        for one in branches:
            node = above.add(plain(one.parts), one, allow_expand=one.leads)
            if one.leads and (one.key in self._open or (open_path and one.on_path)):
                self._open.add(one.key)
                self._fill(node, one.children(), open_path)
                node.expand()

    @on(Tree.NodeExpanded)
    def _line_opened(self, event: Tree.NodeExpanded[Branch]) -> None:
        if event.node.data is not None:
            self._open.add(event.node.data.key)
            if not event.node.children:
                self._fill(event.node, event.node.data.children(), False)

    @on(Tree.NodeCollapsed)
    def _line_closed(self, event: Tree.NodeCollapsed[Branch]) -> None:
        if event.node.data is not None:
            self._open.discard(event.node.data.key)

    def render_label(self, node: TreeNode[Branch], base_style: RichStyle, style: RichStyle) -> Text:
        text = Text((self._marks[node.is_expanded] if node.allow_expand else " ") + " ", base_style)
        for word, name in node.data.parts if node.data is not None else ():
            text.append(word, style + self._style(name))
        return text

    def _style(self, name: str) -> RichStyle:
        if name not in self._styles:
            self._styles[name] = Style.parse(name, self.app.theme_variables).rich_style if name else RichStyle()
        return self._styles[name]

    def action_toggle_node(self) -> None:
        if self.cursor_node is not None and not self.cursor_node.allow_expand:
            self.app.notify("nothing is below this line")
        super().action_toggle_node()

    def action_open(self, wanted: bool) -> None:
        node = self.cursor_node
        if node is None:
            return
        if wanted:
            node.expand()
        elif node.is_expanded:
            node.collapse()
        elif node.parent is not None and node.parent is not self.root:
            self.move_cursor(node.parent)


class TopologyScreen(TitledScreen):
    """Leaf switches, rails and nodes as a tree with verdicts. What the selected pair passes through is highlighted."""

    BINDING_GROUP_TITLE = "Topology"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace,T", "leave", "topology.back", "back to the previous view", "back"),
        shortcut("enter,n", "node", "topology.node", "show the node of the line", "node"),
        shortcut("y", "copy", "topology.copy", "copy the tree as text", "copy"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield self.title_line
        yield TopologyTree(ascii_only=self.context.glyphs.plain)
        yield KeyBar(id="topology-keys")

    @property
    def tree_view(self) -> TopologyTree:
        return self.query_one(TopologyTree)

    def on_mount(self) -> None:
        self.tree_view.focus()
        self.set_interval(_INTERVAL, self._follow)
        self._follow()

    def draw(self) -> None:
        """Draw the title; the tree follows by itself."""
        if not self.is_mounted:
            return
        if self._drawn and self._drawn[-1] != self.filter:
            self._follow()
        pair = self.context.selected_pair()
        names = [str(self.context.model.endpoints[number]) for number in pair] if pair is not None else []
        head: list[Part] = [(" topology ", "bold")]
        head += [("  path of ", MUTED), (f" {' > '.join(names)} ", "bold reverse")] if names else []
        self.show_title(head)

    def _branches(self) -> list[Branch]:
        """Return the sections of the tree; filtered, only the lines below them that match."""
        context = self.context
        findings = context.findings
        made_of = findings.tally, findings.faults, context.selected_pair(), context.glyphs
        found = Topology(context.model, *made_of).roots()
        if not self.filter:
            return found
        kept = []
        for one in found:
            if below := [line for line in one.children() if self.matches(plain(line.parts))]:
                kept.append(replace(one, children=partial(list, below), on_path=True))
        return kept

    def _follow(self) -> None:
        context = self.context
        model, pair = context.model, context.selected_pair()
        now = (context.findings.faults, model.nodes_version, dict(model.table.leaves), pair, self.filter)
        if self._drawn and all(
            a is b or (at and a == b) for at, (a, b) in enumerate(zip(now, self._drawn, strict=True))
        ):
            return
        opened = not self._drawn or self._drawn[3:] != (pair, self.filter)
        self._drawn = now
        self.draw()
        self.tree_view.put(self._branches(), open_path=opened)

    def action_node(self) -> None:
        line = self.tree_view.cursor_node
        if line is not None and line.data is not None and line.data.node is not None:
            self.context.open_node(line.data.node)
        elif line is not None and line.data is not None and line.allow_expand:
            # The lines below a closed line come when it is opened.
            line.toggle()
        else:
            self.context.notify("this line has no node, and none below it")

    def action_copy(self) -> None:
        self.context.copy("\n".join(flat(self._branches())))
