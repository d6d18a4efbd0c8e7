"""ProxyCommand of ssh into the management network: copies standard input and output to and from a TCP port.

Run as a file, in the network namespace of the controller: ``python -IS relay.py ADDRESS PORT``.
"""

import os
import socket
import sys
import threading


def main(address: str, port: int) -> None:
    try:
        server = socket.create_connection((address, port), timeout=30)
    except OSError as error:
        sys.exit(f"{address} port {port}: {error.strerror or error}")
    server.settimeout(None)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def upwards() -> None:
        try:
            while data := os.read(0, 1 << 16):
                server.sendall(data)
        finally:
            # Without ssh there is nobody to answer, even if the network is cut and silent.
            os._exit(0)

    threading.Thread(target=upwards, daemon=True).start()
    while data := server.recv(1 << 16):
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except OSError:
        # The other side is gone; os._exit, because the thread may wait for input.
        os._exit(0)
    os._exit(0)
