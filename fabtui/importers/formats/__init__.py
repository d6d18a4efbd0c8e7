"""The formats that only the login node reads, one file per tool; `fabtui_node` has the formats of commands on nodes."""
