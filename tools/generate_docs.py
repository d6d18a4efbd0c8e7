"""Write the tables of docs/reference from the declarations in the code.

Usage: python tools/generate_docs.py [--check]

With ``--check`` nothing is written; the exit code is 1 if a file is not current.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
NOTICE = "<!-- Written by tools/generate_docs.py from the declarations in the code (make reference). -->"


def cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: object) -> str:
    """Return a value as code, or nothing if it is empty."""
    text = cell(value)
    return f"`{text}`" if text else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def page(title: str, intro: str, *parts: str) -> str:
    """Return a page with a title, a sentence and its tables."""
    return "\n".join([f"# {title}\n", NOTICE, "", intro, "", *parts])


def layers() -> str:
    from fabtui.model.layers import all_layers

    rows = []
    for layer in all_layers():
        spec = layer.spec
        better = spec.better.value if spec.better else ""
        rows.append(
            [
                code(spec.key or ""),
                code(spec.name),
                cell(spec.description or spec.title),
                spec.unit,
                spec.per,
                better,
                "yes" if spec.judged else "",
                "yes" if spec.feeds_health else "",
            ]
        )
    header = ["key", "layer", "shows", "unit", "per", "better", "judged", "in health"]
    intro = (
        "Each layer is declared once, in `fabtui/model/layers.py`. *judged*: a value far from the usual one of its "
        "class is slow. *in health*: the layer `health` includes its verdict."
    )
    return page("Layers", intro, table(header, rows))


def probes() -> str:
    from fabtui_node.registry import PHASES, PROBES, TESTS

    found = [
        [
            *(code(spec.name), cell(spec.title), cell(PHASES[spec.phase]), "yes" if spec.passive else "no"),
            *(cell(spec.needs), cell(spec.gives)),
        ]
        for spec in PROBES.values()
    ]
    tests = [[code(spec.name), cell(spec.title), cell(spec.needs), cell(spec.gives)] for spec in TESTS.values()]
    intro = (
        "`--probes` takes the tests, and the probes that run at the start of a session, between addresses, once the "
        "ranks have started, while the GPUs work, after the tests, or only when named. The others run by themselves. "
        "Each probe is declared in its own file in `probes/fabtui_node/probes/`. Passive "
        "ones only read, without traffic between nodes, ranks or GPU memory: `--read-only` runs no others."
    )
    return page(
        "Probes and tests",
        intro,
        "## Probes\n",
        table(["probe", "collects", "runs", "passive", "needs on the node", "values"], found),
        "## Tests\n",
        table(["test", "measures", "needs on the node", "values"], tests),
    )


def rules() -> str:
    from fabtui.diagnosis import diagnosis, finding  # noqa: F401 - registers all rules
    from fabtui.diagnosis.experiment import experiments_text
    from fabtui.diagnosis.job.logs import job_rules  # noqa: F401 - registers the rules about jobs
    from fabtui.history import rules as history_rules  # noqa: F401 - registers the rules about earlier sessions

    rows = [
        [
            *(rule.id, code(rule.name), cell(rule.title), rule.severity, cell(rule.description), cell(rule.next_step)),
            cell(experiments_text(rule.experiments)),
        ]
        for rule in sorted(finding.RULES, key=lambda rule: rule.id)
    ]
    intro = (
        "A finding is a rule that fired. Severities: `bad` (a test fails or is slow), `warn` (likely), `note`; "
        "the table has the worst one of each rule. `fabtui job` reports those that begin with J ([jobs](../jobs.md))."
    )
    return page(
        "Rules", intro, table(["id", "name", "finding", "severity", "meaning", "next step", "confirmed by tests"], rows)
    )


def xids() -> str:
    from fabtui.diagnosis.knowledge import load
    from fabtui.diagnosis.knowledge.xids import xids as known

    rows = [
        [str(number), code(one.mnemonic), cell(one.name), str(one.usual), one.part, code(one.action)]
        for number, one in sorted(known().items())
    ]
    actions = [[code(action), cell(text)] for action, text in load("xids")["action"].items()]
    source = "[NVIDIA's Xid catalogue](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html)"
    intro = f"Names and immediate actions are those of {source}. The rule `FT130` reports Xids with them."
    return page(
        "Xids",
        intro,
        table(["Xid", "mnemonic", "name", "severity", "part", "action"], rows),
        "## Actions\n",
        table(["action", "meaning"], actions),
    )


def options() -> str:
    from man_page import option_rows

    groups: dict[str, list[list[str]]] = {}
    for row in option_rows():
        several = ", " in row["values"]
        name = row["option"] + (f" {row['values']}" if row["values"] and not several else "")
        meaning = row["help"] + (f" ({row['values']})" if several else "")
        setting = " ".join(code(text) for text in (row["setting"], row["environment"]))
        line = [code(name), cell(meaning), cell(row["default"]), setting, cell(row["commands"])]
        groups.setdefault(row["group"] or "arguments", []).append(line)
    header = ["option", "meaning", "default", "setting and variable", "commands"]
    parts = [f"## {group.capitalize()}\n\n{table(header, rows)}" for group, rows in groups.items()]
    intro = (
        "Each option is declared once, in `fabtui/config/options.py`. The command line has priority over the "
        "environment, the environment over the settings file. Sizes: `256M` and `256MiB` are powers of 1024, `256MB` "
        "is a power of 1000."
    )
    return page("Options", intro, *parts)


def transports() -> str:
    from fabtui.transport.registry import TRANSPORTS

    rows = [[code(spec.name), cell(spec.title), code(spec.hint)] for spec in TRANSPORTS.values()]
    intro = "`--transport` takes these names. Each is declared in `fabtui/transport/registry.py`."
    return page("Transports", intro, table(["transport", "reaches a node through", "the same by hand"], rows))


def keys() -> str:
    from textual.keys import format_key

    from fabtui.screen.app import FabricApp
    from fabtui.screen.keymap import key_rows
    from fabtui.screen.views.command_line import command_rows

    groups: dict[str, list[list[str]]] = {}
    for row in key_rows(FabricApp):
        pressed = " ".join(code(format_key(key)) for key in row.keys.split(","))
        groups.setdefault(row.group, []).append([pressed, cell(row.description), code(row.id)])
    parts = [
        f"## {group}\n\n{table(['key', 'action', 'id in the settings file'], rows)}" for group, rows in groups.items()
    ]
    commands = table(["command", "action"], [[code(text), cell(effect)] for text, effect in command_rows()])
    parts.append(
        "## Commands\n\n`:` takes the part of an id after the dot as a command, such as `:findings`, and these with an "
        f"argument:\n\n{commands}"
    )
    intro = (
        "Each key is a binding of the class that handles it. The table `[keys]` of the settings file changes keys by "
        "id ([settings](../config.md#keys))."
    )
    return page("Keys", intro, *parts)


def errors() -> str:
    from fabtui.diagnosis.knowledge.error_catalogue import filled, meanings
    from fabtui.diagnosis.knowledge.failure_stage import stages
    from fabtui_node.protocol import ErrorKind

    known = [
        [one.code, code(one.id), code(one.prints), cell(filled(one.text, {})), cell(filled(one.next, {}))]
        for one in sorted(meanings(), key=lambda one: int(one.code[1:]))
    ]
    places = [[one.meaning.code, code(one.meaning.id), one.meaning.text, one.meaning.next] for one in stages()]
    rows = [[code(kind.value), cell(kind.meaning)] for kind in ErrorKind]
    intro = (
        "`fabtui explain E13` prints an entry, `fabtui explain rank*.log` finds them in logs. They are declared in "
        "`fabtui/diagnosis/knowledge/errors.toml` and `program_errors.toml`."
    )
    kinds = "Every error carries a kind (`error_kind`) next to its text: on the wire, in recordings and in JSON."
    return page(
        "Errors",
        intro,
        table(["code", "name", "printed as", "means", "next step"], known),
        "## Stages\n\nA failure without an entry is named after the stage that its source file or its words show.\n",
        table(["code", "name", "means", "first check"], places),
        f"## Error kinds\n\n{kinds}\n",
        table(["kind", "meaning"], rows),
    )


def assistant_tools() -> str:
    from fabtui.mcp.tools import TOOLS

    rows, parts = [], []
    for name, kind in TOOLS.items():
        schema = kind.input_schema()
        marks = ["yes" if each else "no" for each in ("nodes" in schema["properties"], kind.tests)]
        rows.append([code(name), *marks, f"{kind.seconds:g} s"])
        arguments = [
            [code(argument), "yes" if argument in schema["required"] else "", cell(each["description"])]
            for argument, each in schema["properties"].items()
        ]
        listed = table(["argument", "needed", "meaning"], arguments)
        parts.append(f"## {name}\n\n{cell(schema['description'])}\n\n{listed}")
    intro = (
        "The tools of `fabtui mcp` ([setup, and what they may do](../mcp.md)), declared in `fabtui/mcp/`. *nodes*: it "
        "connects to nodes. *tests*: it loads GPUs and links, and needs `--allow-tests`. *time*: limit of a call."
    )
    return page("Tools for assistants", intro, table(["tool", "nodes", "tests", "time"], rows), *parts)


def manual() -> str:
    from man_page import man_page

    return man_page()


PAGES: dict[str, Callable[[], str]] = {
    "fabtui.1": manual,
    "errors.md": errors,
    "keys.md": keys,
    "layers.md": layers,
    "mcp.md": assistant_tools,
    "options.md": options,
    "probes.md": probes,
    "rules.md": rules,
    "xids.md": xids,
    "transports.md": transports,
}


def main() -> int:
    """Write the pages, or compare them; return 1 if one is not current."""
    sys.path[:0] = [str(ROOT), str(ROOT / "probes")]
    stale = 0
    for name, make in PAGES.items():
        path = FOLDER / name
        text = make()
        current = path.read_text() if path.is_file() else ""
        if text == current:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} is not current; run: make reference")
            stale = 1
        else:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(path.relative_to(ROOT))
    return stale


if __name__ == "__main__":
    sys.exit(main())
