"""A real Chromium, driven by its own protocol: a pipe of JSON, no package between.

`$EVERWHEN_CHROMIUM` names it, else `chromium` on the path; where there is none, tests are left out in one line.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--no-zygote",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking", "--disable-component-update",
    "--font-render-hinting=none", "--remote-debugging-pipe",
)  # fmt: skip


def chromium() -> str | None:
    """The program, if there is one."""
    given = os.environ.get("EVERWHEN_CHROMIUM")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser says that something is wrong."""


@dataclass
class Browser:
    """The program and its pipe."""

    process: subprocess.Popen[bytes]
    write: int
    read: int
    number: int = 0
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def listen(self) -> None:
        rest = b""
        while piece := os.read(self.read, 1 << 16):
            *messages, rest = (rest + piece).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers[message["id"]] = message
                else:
                    self.events.append(message)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self.write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while number not in self.answers:
            if time.monotonic() > end or self.process.poll() is not None:
                raise BrowserError(f"no answer to {method}")
            time.sleep(0.002)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def page(self, width: int = 1360, height: int = 850, dark: bool = False, touch: bool = False) -> Page:
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1.5 if touch else 1,
            mobile=touch,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        return page


@dataclass
class Page:
    """A tab with cookies of its own."""

    browser: Browser
    session: str

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def run(self, code: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        told = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise BrowserError(json.dumps(told["exceptionDetails"])[:600])
        return told["result"].get("value")

    def until(self, code: str, seconds: float = 30.0) -> Any:
        """Wait until an expression holds; its value."""
        end = time.monotonic() + seconds
        while True:
            try:
                found = self.run(code)
            except BrowserError:
                found = None
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds:g} s: {code}\n{self.text()[:1500]}\n{self.complaints()}")
            time.sleep(0.05)

    def text(self, selector: str = "body") -> str:
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''") or ""

    def click(self, selector: str) -> None:
        self.until(f"document.querySelector({json.dumps(selector)}) !== null")
        self.run(
            f"document.querySelector({json.dumps(selector)}).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
        )

    def type(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def key(self, name: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def middle(self, selector: str) -> tuple[float, float]:
        box = self.run(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return box[0], box[1]

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        def mouse(kind: str, at: tuple[float, float], buttons: int) -> None:
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", buttons=buttons, clickCount=1
            )

        mouse("mousePressed", start, 1)
        for i in range(1, 6):
            mouse("mouseMoved", tuple(a + (b - a) * i / 5 for a, b in zip(start, end, strict=True)), 1)  # type: ignore[arg-type]
        mouse("mouseReleased", end, 0)

    def picture(self, file: Path) -> None:
        told = self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(told["data"]))

    def _events(self, method: str) -> list[dict[str, Any]]:
        mine = [each for each in self.browser.events if each.get("sessionId") == self.session]
        return [each["params"] for each in mine if each["method"] == method]

    def complaints(self) -> list[str]:
        """Errors of scripts, of the policy, of the console."""
        thrown = [each["exceptionDetails"] for each in self._events("Runtime.exceptionThrown")]
        found = [each.get("exception", {}).get("description") or each.get("text", "") for each in thrown]
        entries = [each["entry"] for each in self._events("Log.entryAdded")]
        return [*found, *(each["text"] for each in entries if each["level"] == "error" and each["source"] != "network")]

    def requests(self) -> list[str]:
        """All addresses that were asked for."""
        return [each["request"]["url"] for each in self._events("Network.requestWillBeSent")]

    def close(self) -> None:
        self.call("Page.close")


@contextmanager
def browsing(program: str) -> Iterator[Browser]:
    """A browser with a profile of its own."""
    down, up = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:

        def wire() -> None:  # it reads from 3 and writes to 4
            os.dup2(down[0], 13)
            os.dup2(up[1], 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"], preexec_fn=wire, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(down[0])
        os.close(up[1])
        browser = Browser(process, down[1], up[0])
        threading.Thread(target=browser.listen, daemon=True).start()
        try:
            yield browser
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            os.close(down[1])
