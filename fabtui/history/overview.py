"""Overview of the history of a site since a time, as every front end shows it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fabtui.history.course import DAY, Course, PastSession, Standout, VersionStep
from fabtui.history.history_file import history_file
from fabtui.history.site_history import open_history

#: Maximum number of components of an overview, and of courses of a subject.
MOST_COMPONENTS, MOST_COURSES = 40, 60
#: Seconds before now, or before a session, of which the overview is.
USUAL_TIME = 30 * DAY


@dataclass(frozen=True)
class Overview:
    """Sessions of a time, what stands out in them, and the courses of a subject if one was asked for."""

    path: Path  #: File of the history.
    since: float  #: Start of the time (epoch seconds); 0 for all of it.
    until: float  #: Sessions that began then (epoch seconds) or later are left out; infinite for none.
    total: int  #: Number of sessions of that time.
    sessions: Sequence[PastSession]  #: The latest of them, the newest first.
    standouts: Sequence[Standout]  #: Components that stand out in that time, the worst first.
    subject: str = ""  #: The subject, or "".
    courses: Sequence[Course] = ()  #: Courses of the subject, or of the first components that stand out.
    version_steps: Sequence[VersionStep] = ()  #: New versions that changed what is usual, the latest first.

    @property
    def is_empty(self) -> bool:
        """True if no session of that time is known."""
        return not self.total


def usual_start(subject: str) -> float:
    """Return the start (epoch seconds) of what is shown where no other is asked for: of a subject its whole course."""
    return 0.0 if subject else start_before(time.time())


def start_before(moment: float) -> float:
    """Return the start (epoch seconds) of the usual time before a moment, a whole day (UTC): days count as a whole."""
    return max(0.0, (moment - USUAL_TIME) // DAY * DAY)


def read_site(lab: bool, since: float, until: float, courses: int) -> Overview:
    """Read the overview of this site, or of its labs; see `read_overview`."""
    return read_overview(history_file(lab), since, until=until, courses=courses)


def read_overview(
    path: Path | None, since: float, subject: str = "", *, until: float = math.inf, courses: int = 0
) -> Overview:
    """Read the overview of a history.

    Args:
        path: File of the history; None for that of the site.
        since: Start of the time (epoch seconds).
        subject: A node, an endpoint, a port or an identity; "" for none.
        until: Sessions that began then (epoch seconds) or later are left out.
        courses: Number of components that stand out whose courses are read, if there is no subject.

    Raises:
        InputError: The file cannot be used.
    """
    with open_history(path, until) as past:
        sessions = past.sessions(since)
        if not sessions:
            return Overview(past.path, since, until, 0, (), (), subject)
        standouts = past.worst(since, MOST_COMPONENTS)
        if subject:
            found = past.history_of(subject, since)[:MOST_COURSES]
        else:
            found = [course for one in standouts[:courses] for course in past.history_of(one.component, since)]
        steps = past.version_steps(since)
        return Overview(past.path, since, until, past.count(since), sessions, standouts, subject, found, steps)
