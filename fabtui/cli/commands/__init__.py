"""Subcommands of fabtui.

Each module has its help, ``HELP``, and ``execute(args)``, which runs the command and returns the exit code. It raises
`InputError` for arguments that are not valid, and for files that cannot be read or written. A module may have a second
command, see `fabtui.cli.parser.place_of`.
"""
