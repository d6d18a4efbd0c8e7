"""The transport over asyncssh: connections, jump hosts, keys."""
