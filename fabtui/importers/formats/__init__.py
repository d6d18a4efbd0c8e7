"""The formats that only the login node reads, one file a tool; those of commands on nodes are in `fabtui_node`."""
