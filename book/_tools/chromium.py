"""Drive a headless Chromium over its DevTools protocol: open a page, run a script in it, print it."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

from websocket import create_connection

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
READY = """(async () => {
  while (document.readyState !== 'complete') await new Promise(done => setTimeout(done, 50));
  if (window.MathJax?.startup?.promise) await MathJax.startup.promise;
  await document.fonts.ready;
})()"""
"""Waits until a page is loaded and its equations are set."""


class ChromiumMissing(RuntimeError):
    """No Chromium was found; the message says where it was looked for."""


def find() -> str:
    """Return the browser's path: what the variable ``CHROMIUM`` names, or the first of the usual names.

    Raises
    ------
    ChromiumMissing
        If there is none.
    """
    asked = os.environ.get("CHROMIUM")
    for name in (asked,) if asked else NAMES:
        if path := shutil.which(name):
            return path
    looked = f"CHROMIUM={asked}" if asked else f"{', '.join(NAMES)} on the PATH"
    raise ChromiumMissing(
        f"no Chromium found ({looked}): install one (apt install chromium), or name one in the variable CHROMIUM"
    )


def wait_for(what: Callable[[], Any], seconds: float, words: str) -> Any:
    """Return what a function returns once it is something; `TimeoutError` after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{words} within {seconds:g} s")


class Chromium:
    """A browser with one page; use it in a ``with`` statement."""

    def __enter__(self) -> Self:
        command = [find(), "--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        command += ["--remote-debugging-port=0", "--remote-allow-origins=*", "--allow-file-access-from-files"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium refuses to sandbox root, as whom containers run
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            note = Path(self._profile) / "DevToolsActivePort"
            port = wait_for(lambda: note.is_file() and note.read_text().split("\n")[0], 60, "Chromium did not start")
            with urlopen(Request(f"http://127.0.0.1:{port}/json/new", method="PUT")) as answer:
                address = json.load(answer)["webSocketDebuggerUrl"]
            self._socket = create_connection(address, timeout=900)
        except BaseException:
            self._stop()
            raise
        self._numbers = itertools.count(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._stop()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result; a `RuntimeError` if the browser refuses."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv())).get("id") != number:
            continue  # events
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def run(self, script: str) -> Any:
        """Evaluate JavaScript in the page, wait for a promise, and return its value."""
        found = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "script failed"))
        return found["result"].get("value")

    def block(self, *addresses: str) -> None:
        """Load nothing whose address fits one of these patterns."""
        self.send("Network.enable")
        self.send("Network.setBlockedURLs", urls=list(addresses))

    def open(self, page: Path) -> None:
        """Open a built page and wait until its equations are set."""
        self.send("Page.enable")
        self.send("Page.navigate", url=page.resolve().as_uri())
        here = json.dumps(page.resolve().as_uri())
        wait_for(lambda: self.run(f"location.href.split('#')[0] === {here}"), 60, f"{page.name} did not open")
        self.run(READY)

    def view(self, *, width: int = 1280, dark: bool = False) -> None:
        """Show the open page at a width in pixels, light or dark."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        mode = "dark" if dark else "light"
        self.run(f"Object.assign(document.documentElement.dataset, {{mode: '{mode}', theme: '{mode}'}}); undefined")

    def pdf(self, landscape: bool = False) -> bytes:
        """Return the open page on A4 paper."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "landscape": landscape}
        margins = dict.fromkeys(("marginTop", "marginBottom", "marginLeft", "marginRight"), 0.6)
        found = self.send("Page.printToPDF", printBackground=True, **paper, **margins)
        return base64.b64decode(found["data"])
