"""The command line: one small file a command; parsing only, nothing heavy is imported at the top."""
