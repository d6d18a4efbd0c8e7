"""The page of the app in a browser; textual-serve brings the terminal in it."""

from __future__ import annotations

import html
from string import Template

#: Maximum time (s) in which a window whose connection was cut comes back; its session continues meanwhile.
RECONNECT_SECONDS = 120
#: Close code of a session that no longer exists.
GONE = 4404

_INDEX = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fabtui</title>
<link rel="preload" href="static/fonts/RobotoMono-VariableFont_wght.ttf" as="font" crossorigin>
<link rel="stylesheet" href="static/css/xterm.css">
<link rel="stylesheet" href="page.css">
<script src="page.js" defer></script>
<script src="static/js/textual.js" defer></script>
</head>
<body data-host="$host" data-reconnect="$seconds" data-gone="$gone">
<div id="terminal" class="textual-terminal" data-session-websocket-url="" data-font-size="15"></div>
<div id="waiting"><p id="name">fabtui</p><p id="reason">Loading the page from $host ...</p><p id="elapsed"></p></div>
<div id="cut"></div>
<div id="ended">The session has ended. <a href="">Reload the page</a> for a new one.</div>
</body>
</html>
""")

STYLE = """
@font-face { font-family: "Roboto Mono"; font-weight: 100 700;
             src: url("static/fonts/RobotoMono-VariableFont_wght.ttf"); }
html, body { margin: 0; height: 100%; background: #121212; overflow: hidden; font: 15px "Roboto Mono", monospace; }
#terminal { position: absolute; inset: 0; }
#waiting { position: absolute; inset: 0; z-index: 20; padding: 12vh 8vw; background: #121212; color: #e0e0e0; }
#waiting p { max-width: 44em; line-height: 1.6; }
#name { color: #6aaef2; font-size: 20px; font-weight: bold; }
#elapsed { color: #9e9e9e; }
body.-first-byte #waiting, body.-closed #waiting { display: none; }
#cut, #ended { display: none; position: absolute; left: 0; right: 0; bottom: 0; z-index: 20; padding: 8px;
               text-align: center; background: #f0b429; color: #121212; }
#ended a { color: inherit; }
body.-cut #cut, body.-closed #ended { display: block; }
"""

#: The terminal connects to the address of the page, as a tunnel may have changed the port. Its socket is replaced by
#: one that connects again after a cut, which has the code 1006.
SCRIPT = """
const page = new URL(window.location.href), body = document.body, part = (name) => document.getElementById(name);
page.protocol = page.protocol === "https:" ? "wss:" : "ws:";
page.search = page.hash = "";
part("terminal").dataset.sessionWebsocketUrl = page.href.replace(/[^/]*$/, "") + "ws";
const size = Number(new URLSearchParams(window.location.search).get("fontsize"));
if (size >= 6 && size <= 60) part("terminal").dataset.fontSize = size;
// Phones: 54 columns at 390 pixels, which is enough for the sentence and a grid.
else if (window.innerWidth < 600) part("terminal").dataset.fontSize = 12;

const began = Date.now(), patience = Number(body.dataset.reconnect) * 1000;
const passed = (since) => Math.round((Date.now() - since) / 1000) + " s";
const waitFor = (reason) => { part("reason").textContent = reason; };
waitFor("Connecting to fabtui serve on " + body.dataset.host + " ...");
setInterval(() => { part("elapsed").textContent = passed(began); }, 1000);

// The window has the same key after a reload.
let key = crypto.getRandomValues(new Uint32Array(4)).join("-");
try {
  key = sessionStorage.fabtui ||= key;
} catch { /* without storage, a window has a new key after a reload */ }
const Socket = window.WebSocket;
window.WebSocket = class extends EventTarget {
  constructor(url) {
    super();
    this.url = url + "&window=" + key;
    this.connect("");
    setInterval(() => this.check(), 5000);
  }
  connect(again) {
    const socket = this.socket = new Socket(this.url + again);
    socket.binaryType = "arraybuffer";
    this.asked = 0;
    socket.onopen = () => {
      body.classList.remove("-cut");
      this.lost = 0;
      if (!this.opened) this.dispatchEvent(new Event("open"));
      else if (this.size) socket.send(this.size);
      this.opened = true;
    };
    socket.onmessage = (event) => {
      this.asked = 0;
      if (typeof event.data !== "string") this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      else if (JSON.parse(event.data)[0] === "waits") waitFor(JSON.parse(event.data)[1]);
    };
    socket.onclose = (event) => this.closed(event.code);
  }
  closed(code) {
    this.lost ||= Date.now();
    if (code === 1006 && Date.now() - this.lost < patience) {
      part("cut").textContent = "The connection to fabtui serve on " + body.dataset.host + " was cut; connecting again "
        + "since " + passed(this.lost) + ". The session is kept for " + body.dataset.reconnect + " s.";
      if (this.opened) body.classList.add("-cut");
      setTimeout(() => this.connect(this.opened ? "&again=1" : ""), 1000);
      return;
    }
    body.classList.remove("-cut");
    if (code === 1001) part("ended").textContent = "fabtui serve on " + body.dataset.host + " was stopped.";
    this.dispatchEvent(new CloseEvent("close", { code }));
  }
  check() {
    // A tunnel that is stuck does not close the connection.
    if (this.socket.readyState !== Socket.OPEN) return;
    if (!this.asked) {
      this.asked = Date.now();
      this.socket.send(JSON.stringify(["ping", ""]));
    } else if (Date.now() - this.asked > 15000) {
      this.socket.onclose = null;
      this.socket.close();
      this.closed(1006);
    }
  }
  send(text) {
    if (text.startsWith('["resize"')) this.size = text;
    if (this.socket.readyState === Socket.OPEN) this.socket.send(text);
  }
};

// Keys go to the terminal without a click on it first, once it is connected.
const take = () => document.querySelector(".xterm-helper-textarea")?.focus();
const connecting = setInterval(() => {
  if (!body.classList.contains("-loaded")) return;
  clearInterval(connecting);
  take();
  window.addEventListener("focus", take);
}, 50);
"""


def index(host: str) -> str:
    """Return the page; ``host`` is the name of this machine."""
    return _INDEX.substitute(host=html.escape(host), seconds=RECONNECT_SECONDS, gone=GONE)
