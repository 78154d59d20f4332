"""A headless Chromium driven through its DevTools protocol."""

import asyncio
import base64
import itertools
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import aiohttp

BINARIES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",  # a mouse
)


def find_browser() -> str | None:
    """Path of a Chromium, or None."""
    return next((path for name in BINARIES if (path := shutil.which(name))), None)


class Browser:
    """One page. Errors on its console, exceptions and requests are kept in lists."""

    def __init__(self, binary: str, profile: Path):
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._ids = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        command = [binary, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._loop.run_until_complete(
            self._connect(_port(profile / "DevToolsActivePort"))
        )
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    async def _connect(self, port: int) -> None:
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json") as answer:
            page = next(t for t in await answer.json() if t["type"] == "page")
        self._socket = await self._session.ws_connect(
            page["webSocketDebuggerUrl"], max_msg_size=1 << 27
        )

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call the protocol and wait for its answer."""
        return self._loop.run_until_complete(
            asyncio.wait_for(self._call(method, parameters), 60)
        )

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = next(self._ids)
        await self._socket.send_json(
            {"id": number, "method": method, "params": parameters}
        )
        while True:
            message = await self._socket.receive_json()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and parameters["type"] in (
            "error",
            "warning",
        ):
            self.errors.append(str(parameters["args"]))
        if method == "Log.entryAdded" and parameters["entry"]["level"] in (
            "error",
            "warning",
        ):
            self.errors.append(str(parameters["entry"]))
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def open(
        self,
        page: Path | str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
    ) -> None:
        """Load a file or an address."""
        address = page if isinstance(page, str) else page.as_uri()
        self.errors.clear()
        self.requests.clear()
        size = {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        }
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, motion])
        self.call("Page.navigate", url=address)
        self.wait(
            "document.readyState === 'complete' && "
            f"location.href === new URL('{address}').href"
        )

    def back(self) -> None:
        """Return to the page before, as its button does; a script that does so may end before it answers."""
        history = self.call("Page.getNavigationHistory")
        self.call(
            "Page.navigateToHistoryEntry",
            entryId=history["entries"][history["currentIndex"] - 1]["id"],
        )

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 90) -> None:
        """Until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self._holds(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.05)

    def _holds(self, condition: str) -> bool:
        try:
            return bool(self.run(condition))
        except AssertionError as error:
            if "target navigated" not in str(error):
                raise
            return False  # the page that was asked has gone

    def press(self, key: str, code: int) -> None:
        """A key, such as Tab (9), Enter (13), End (35)."""
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text,
            )

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a PNG of the view, or of the whole page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """End the browser."""
        self._loop.run_until_complete(self._socket.close())
        self._loop.run_until_complete(self._session.close())
        self._loop.close()
        self._process.terminate()
        self._process.wait(20)


def _port(file: Path) -> int:
    end = time.monotonic() + 60
    while not (file.exists() and os.path.getsize(file)):
        assert time.monotonic() < end, "the browser did not start"
        time.sleep(0.1)
    return int(file.read_text().split()[0])
