"""How a node is reached: ssh, the user's own ssh, or a process on this machine, with one kind of link over each."""
