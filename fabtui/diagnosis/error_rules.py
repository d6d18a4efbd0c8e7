"""Rules of the error catalogue: each of its entries fires where lines of logs have that error."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from fabtui.diagnosis.finding import Domain, Finding, Rule, Severity
from fabtui.diagnosis.knowledge.error_catalogue import Meaning
from fabtui.diagnosis.knowledge.log_causes import Causes, Occurrences

_SEVERITY = {"cause": Severity.BAD, "consequence": Severity.WARN, "notice": Severity.NOTE}
_ROUTE = "RECEIVER_ADDRESS from SENDER_ADDRESS"
#: Maximum number of ranks or hosts that a title names.
_MOST_NAMED = 4


class KnownError(Rule[Causes]):
    """Base of the rules of the catalogue; their ids are its codes, such as ``E13``."""

    domain = Domain.LOGS
    message = "{line}[, {times} times][, {who}]"

    def check(self, context: Causes) -> Iterator[Finding]:
        for one in (*context.causes, *context.consequences, *context.notices):
            if (one.meaning.code, one.meaning.id) == (self.id, self.name):
                yield self.occurred(one)

    def occurred(self, one: Occurrences) -> Finding:
        """Return the finding of an error that occurred."""
        who = list(one.who)
        more = f" and {len(who) - _MOST_NAMED} more" if len(who) > _MOST_NAMED else ""
        facts = {
            "line": one.first.text,
            "times": one.count if one.count > 1 else None,
            "who": "; ".join(who[:_MOST_NAMED]) + more or None,
            **one.meaning.facts,
        }
        commands = (command.replace("{route}", _ROUTE) for _, command in one.meaning.commands)
        return self.finding(one.meaning.id, facts=facts, commands=dict.fromkeys(commands))


@functools.lru_cache(maxsize=512)
def error_rule(meaning: Meaning) -> KnownError:
    """Return the rule of an entry of the catalogue."""
    own = {"id": meaning.code, "name": meaning.id, "title": meaning.prints, "severity": _SEVERITY[meaning.role]}
    own |= {"next_step": meaning.next, "__doc__": meaning.text}
    made: type[KnownError] = type(meaning.id, (KnownError,), own)
    return made()


def error_findings(causes: Causes) -> list[Finding]:
    """Return a finding for each error of logs: causes first, then their consequences, then notices."""
    found = (*causes.causes, *causes.consequences, *causes.notices)
    return [error_rule(one.meaning).occurred(one) for one in found]
