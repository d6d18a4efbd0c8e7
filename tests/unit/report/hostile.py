"""A session whose node names, errors, probe results and files try to be markup, commands or other text."""

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, LogEntry, Measured, NodeState, NodeUpdate, SessionEnd, SessionStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model

#: Elements, attributes, links, Markdown, mathematics, escapes, and a turn of the direction of writing.
TEXTS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "' onmouseover='alert(3)",
    "[click](javascript:alert(4))",
    "![p](http://192.0.2.66/p.png) <http://192.0.2.66/a> http://192.0.2.66/b",
    "[r]: http://192.0.2.66/c [r] [r][r]",
    "| a | b |\n|---|---|\n# heading\n* item\n```\nfence",
    "`code` **bold** ~~gone~~ $x$ <!-- comment",
    "\x1b[31mred\x1b[0m\x07 \u202egnp.exe\u2066 \u200bzero",
    "</title></style></svg></pre><iframe src=//192.0.2.66>",
    "&lt;b&gt; &amp; &#x202e;",
)


def hostile() -> Model:
    model = Model()
    nodes = ["n000", f"n001{TEXTS[1]}", f"n002{TEXTS[3]}", f"n003{TEXTS[8]}"]
    options = {"probes": ["p2p", "ping", TEXTS[0]], "hosts": list(TEXTS), TEXTS[2]: TEXTS[4]}
    model.apply(SessionStart(nodes=nodes, options=options, version=TEXTS[0], faults=list(TEXTS), time=1.0))
    for at, node in enumerate(nodes):
        model.apply(NodeUpdate(node=node, state=NodeState.READY, text=TEXTS[at], hint=TEXTS[5], time=1.0))
    ends = [Endpoint(at, node, 0, "gpu", TEXTS[at], address="192.0.2.1") for at, node in enumerate(nodes)]
    model.apply(EndpointsAdded(endpoints=ends, notes={nodes[0]: TEXTS[6]}, time=1.0))
    found = []
    for at, src in enumerate(ends):
        for to, dst in enumerate(ends):
            if at != to:
                error = TEXTS[(4 * at + to) % len(TEXTS)]
                how, way = TEXTS[at], TEXTS[to + 4]
                found.append(
                    Measurement(
                        *(Layer.P2P, str(src), str(dst), Verdict.FAILED, None, "GB/s", 1 << 20, 2.0, how),
                        transport=way,
                        error=error,
                    )
                )
                ping = (Layer.PING, src.node, dst.node, Verdict.FAILED, None, "ms", None, 2.0, how)
                found.append(Measurement(*ping, error=error, src_addr=TEXTS[2], dst_addr=TEXTS[9]))
    busbw = (Layer.BUSBW, "all", "all", Verdict.OK, 4.0, TEXTS[0], 1 << 20, 2.0, TEXTS[7])
    found.append(Measurement(*busbw, extra={"algorithm": TEXTS[0], "ranks": 4, "seconds": 1.0}))
    model.apply(Measured(measurements=found, time=2.0))
    for text in TEXTS:
        model.apply(LogEntry(level="error", node=nodes[1], text=text, time=2.0))
    model.apply(SessionEnd(text=TEXTS[0], time=3.0))
    return model
