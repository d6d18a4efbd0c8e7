"""``fabtui schema``: JSON Schemas of the JSON files."""

from __future__ import annotations

import argparse
import json

from fabtui.errors import InputError
from fabtui.export.formats import FORMATS, schema

HELP = """\
Print the JSON Schema (2020-12) of what --json of run, preflight or diff, or --planner writes.

examples:
  fabtui schema > session.schema.json
  fabtui schema diff | jq .properties.pairs
"""


def execute(args: argparse.Namespace) -> int:
    """Print a schema; return the exit code."""
    name = getattr(args, "name", "session")
    if name not in FORMATS:
        raise InputError(f"there is no schema {name!r}; there are {', '.join(FORMATS)}")
    print(json.dumps(schema(name), indent=1))
    return 0
