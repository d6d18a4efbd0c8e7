"""Notes about findings that the user knows about."""

from __future__ import annotations

from fabtui.diagnosis.acknowledged import finding_key
from fabtui.diagnosis.finding import Finding
from fabtui.presentation.findings import title
from fabtui.screen import feed_actions
from fabtui.screen.context import AppContext


def can_acknowledge(context: AppContext) -> bool:
    """Return True if notes about findings can be kept, else notify the user."""
    if context.feed is not None and context.feed.can_test:
        return True
    started = context.feed is not None
    context.notify("a recording cannot be changed" if started else "the session has not started yet")
    return False


def acknowledge(context: AppContext, finding: Finding, note: str) -> None:
    """Keep a note about a finding, or remove it if the note is empty."""
    if context.feed is not None:
        request = context.feed.acknowledge(finding_key(finding), title(finding), note)
        context.run_worker(feed_actions.report(context, request), "acknowledge", exit_on_error=False)
