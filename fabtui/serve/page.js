// The terminal connects to the address of the page, as a tunnel may have changed the port. Its socket is replaced by
// one that connects again after a cut, which has the code 1006.
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
