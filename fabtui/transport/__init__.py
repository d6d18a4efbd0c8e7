"""Transports: asyncssh, OpenSSH or a local process, with the same framed link over each."""
