"""What commands print, one file a command: how to know it, and what its values are. Nothing in here runs anything."""
