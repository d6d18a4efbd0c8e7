"""The page that holds the terminal; everything it needs comes from the same server."""

from __future__ import annotations

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>fabtui</title>
<link rel="stylesheet" href="static/css/xterm.css">
<link rel="stylesheet" href="page.css">
<script src="page.js" defer></script>
<script src="static/js/textual.js" defer></script>
</head>
<body>
<div id="terminal" class="textual-terminal" data-session-websocket-url="" data-font-size="16"></div>
<div id="ended">The session has ended. Reload the page for a new one.</div>
</body>
</html>
"""

STYLE = """
@font-face { font-family: "Roboto Mono"; src: url("static/fonts/RobotoMono-VariableFont_wght.ttf"); }
html, body { margin: 0; height: 100%; background: #121212; overflow: hidden; }
#terminal { position: absolute; inset: 0; }
#ended { display: none; position: absolute; left: 0; right: 0; bottom: 0; padding: 8px; text-align: center;
         background: #f0b429; color: #121212; font: 16px "Roboto Mono", monospace; }
body.-closed #ended { display: block; }
"""

#: Where the terminal connects to: beside the page, whatever port a tunnel has given it on the user's machine.
SCRIPT = """
const page = new URL(window.location.href);
page.protocol = page.protocol === "https:" ? "wss:" : "ws:";
page.search = page.hash = "";
document.getElementById("terminal").dataset.sessionWebsocketUrl = page.href.replace(/[^/]*$/, "") + "ws";
const size = Number(new URLSearchParams(window.location.search).get("fontsize"));
if (size >= 6 && size <= 60) document.getElementById("terminal").dataset.fontSize = size;
// Keys go to the terminal without a click on it first, once it is connected.
const take = () => document.querySelector(".xterm-helper-textarea")?.focus();
const connecting = setInterval(() => {
  if (!document.body.classList.contains("-loaded")) return;
  clearInterval(connecting);
  take();
  window.addEventListener("focus", take);
}, 50);
"""
