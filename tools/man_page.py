"""The manual page, from the declarations of commands and options; tools/generate_docs.py writes it."""


def roff(text: str) -> str:
    """Return a text as roff shows it: no escapes, no requests."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha").replace("~", "\\(ti")
    )
    return "\\&" + escaped if escaped.startswith(".") else escaped


def option_rows() -> list[dict[str, str]]:
    """Return a row for each option: those of the app first, arguments of single commands last."""
    from fabtui.config.options import OPTIONS

    rows = [
        {
            # A setting without a command has no option.
            "option": f"{spec.short}, {spec.flag}".removeprefix(", ") if spec.commands else spec.argument,
            "commands": ", ".join(name or "fabtui" for name in spec.commands),
            "help": spec.help,
            "values": ", ".join(spec.allowed) or spec.metavar or "",
            "default": spec.default,
            "setting": spec.key,
            "environment": spec.variable,
            "group": spec.group,
        }
        for spec in OPTIONS
    ]
    return sorted(rows, key=lambda row: ("fabtui" not in row["commands"].split(", "), not row["group"]))


def _options() -> list[str]:
    groups: dict[str, list[str]] = {}
    for row in option_rows():
        values = row["values"].replace(", ", "|")
        notes = [f"Default: {row['default']}."] if row["default"] else []
        notes += [f"Variable: {row['environment']}."] if row["environment"] else []
        notes += [f"Commands: {row['commands']}." if row["commands"] else f"Settings file: {row['setting']}."]
        text = f"{row['help'][:1].upper()}{row['help'][1:]}. {' '.join(notes)}"
        name = f"\\fB{roff(row['option'])}\\fR" + (f" \\fI{roff(values)}\\fR" if values else "")
        groups.setdefault(row["group"] or "arguments", []).extend([".TP", name, roff(text)])
    return [line for group, lines in groups.items() for line in (f".SS {roff(group.capitalize())}", *lines)]


def _help(texts: tuple[str, str]) -> list[str]:
    description, epilog = texts
    block = [".PP", ".nf", ".RS 2", *map(roff, epilog.strip().splitlines()), ".RE", ".fi"] if epilog else []
    return [roff(description), *block]


def man_page() -> str:
    """Return the text of fabtui(1)."""
    from fabtui import __version__
    from fabtui.cli.parser import COMMANDS, FURTHER, build_parser, help_of

    usage = [build_parser(()).usage_text().removeprefix("usage: ")]
    lines = [
        '.\\" Written by tools/generate_docs.py from the declarations in the code (make reference).',
        f'.TH FABTUI 1 "" "fabtui {__version__}" "User Commands"',
        *(".SH NAME", "fabtui \\- test every GPU of a cluster against every other GPU"),
        *(".SH SYNOPSIS", ".nf", *(f"\\fB{roff(line)}\\fR" for line in usage), ".fi"),
        *(".SH DESCRIPTION", *_help(help_of(""))),
        ".SH COMMANDS",
    ]
    for command in (*COMMANDS, *FURTHER):
        lines += [f".SS fabtui {roff(command)}", *_help(help_of(command))]
    lines += [".SH OPTIONS", *_options()]
    lines += [
        *(".SH FILES", ".TP", "\\fI\\(ti/.config/fabtui/config.toml\\fR", "Settings; see fabtui config."),
        *(".TP", "\\fI\\(ti/.local/state/fabtui/recordings\\fR", "Recordings of sessions; see fabtui info."),
        *(".SH SEE ALSO", "\\fBssh\\fR(1), \\fBsrun\\fR(1), \\fBnvidia\\-smi\\fR(1)"),
    ]
    return "\n".join(line.rstrip() or ".sp" for line in lines) + "\n"
