"""The commands, one module each with ``execute(args)``; only the module of the command that runs is imported."""
