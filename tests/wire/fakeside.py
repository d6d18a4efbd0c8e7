"""A node side of a few lines that does what a test asks for: answer, fall silent, flood, send nonsense, end."""

import os
from typing import Any

from fabtui.transport.link import Link
from fabtui.transport.payload import node_modules
from fabtui_node.protocol import MAX_FRAME

SOURCE = """
import os, sys, time
from fabtui_node.protocol import Decoder, VERSION, encode, marker

def put(data):
    while data:
        data = data[os.write(1, data):]

def main(config):
    put(marker(config["nonce"]))
    hello = {"t": "hello", "protocol": VERSION, "pid": os.getpid(), "python": "3", "host": "fake", "config": config}
    hello.update(config["env"].get("hello") or {})
    put(encode(hello))
    decoder = Decoder()
    beats = 0
    while True:
        data = os.read(0, 65536)
        if not data:
            return
        for message in decoder.feed(data):
            kind = message["t"]
            if kind == "hb":
                beats += 1
                put(encode({"t": "hb", "n": message["n"], "rank": False}))
            elif kind == "bye":
                return
            elif kind == "echo":
                put(encode(message))
            elif kind == "beats":
                put(encode({"t": "beats", "beats": beats}))
            elif kind == "flood":
                for number in range(message["count"]):
                    put(encode({"t": "flood", "number": number, "fill": "x" * message["size"]}))
            elif kind == "raw":
                put(message["hex"] and bytes.fromhex(message["hex"]))
            elif kind == "stderr":
                os.write(2, message["text"].encode())
            elif kind == "exit":
                os.write(2, message["text"].encode())
                os._exit(message["status"])
            elif kind == "deaf":
                time.sleep(600)
"""


def options(**more: Any) -> dict[str, Any]:
    """Return the options of a `Connector` that starts this node side."""
    sent = ("fabtui_node", "fabtui_node.runtime.bootloader", "fabtui_node.protocol")
    modules = {name: source for name, source in node_modules().items() if name in sent}
    return {"modules": {**modules, "fake_side": SOURCE}, "entry": "fake_side", **more}


async def exchange(link: Link, total: int) -> list[int]:
    """Have frames of a byte up to the largest come back; return the sizes of those that came back changed.

    ``total``: bytes in all, there and back.
    """
    around = len('{"t":"echo","fill":""}') + 1
    sizes = [1, 9, 10, 4096, 65535, 65536, 1 << 20]
    sizes += [MAX_FRAME - around] * ((total // 2 - sum(sizes)) // MAX_FRAME + 1)
    wrong = []
    for size in sizes:
        fill = os.urandom(size // 2 + 1).hex()[:size]
        await link.send({"t": "echo", "fill": fill})
        if (await link.receive()).get("fill") != fill:
            wrong.append(size)
    return wrong
