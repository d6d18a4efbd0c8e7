"""Access to the operating system: commands, sysfs, PCI, libraries."""
