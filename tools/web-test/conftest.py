"""The browser, the scripted server, and a page whose errors fail the test."""

import os
import re
import shutil
import threading
from pathlib import Path

import mock
import pytest
from playwright.sync_api import expect, sync_playwright

expect.set_options(timeout=8000)


def pytest_addoption(parser):
    parser.addoption("--url", help="a running server in place of the scripted one")
    parser.addoption("--screenshots", help="folder for pictures")


def pytest_collection_modifyitems(config, items):
    """Against a real server there is no script to play."""
    if config.getoption("--url"):
        scripted = [item for item in items if "model" in item.fixturenames]
        config.hook.pytest_deselected(items=scripted)
        items[:] = [item for item in items if item not in scripted]


@pytest.fixture(scope="session")
def browser():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert path, "no chromium: apt-get install chromium, or set CHROMIUM"
    with sync_playwright() as playwright:
        # Containers have neither the sandbox's rights nor much of /dev/shm.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(request):
    """None for a real server."""
    if request.config.getoption("--url"):
        yield None
        return
    process, port = mock.start_page(mock.build_page())
    server = mock.Mock(port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    process.terminate()
    process.wait()


@pytest.fixture
def url(request, server):
    return request.config.getoption("--url") or f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def model(server):
    """The scripted server, as new."""
    server.reset()
    yield server
    for gate in server.gates.values():
        gate.set()


class Page:
    """A browser's page with the words of these tests."""

    def __init__(self, page, url, pictures):
        self.page = page
        self.url = url
        self.pictures = pictures

    def __getattr__(self, name):
        return getattr(self.page, name)

    def open(self, has_models=True):
        self.page.goto(self.url)
        if has_models:
            expect(self.page.locator("#model")).not_to_have_value("")
        return self

    def say(self, text):
        self.page.get_by_role("textbox", name="Message", exact=True).fill(text)
        self.page.keyboard.press("Enter")

    def ask(self, text):
        """Sends and waits for the whole answer."""
        self.say(text)
        self.wait()

    def wait(self):
        expect(self.page.locator("#send")).to_be_visible()
        expect(self.page.locator("[aria-busy]")).to_have_count(0)

    def answer(self):
        return self.page.locator(".message[data-role=assistant]").last

    def question(self):
        return self.page.locator(".message[data-role=user]").last

    def press(self, name, scope=None):
        (scope or self.page).get_by_role("button", name=name, exact=True).click()

    def until(self, condition, argument):
        """Waits for an asynchronous condition."""
        loop = """async (argument) => {
          for (let i = 0; i < 200; i++) {
            if (await (CONDITION)(argument)) return true;
            await new Promise((resolve) => setTimeout(resolve, 50));
          }
          return false;
        }"""
        assert self.page.evaluate(loop.replace("CONDITION", condition), argument), condition

    def picture(self, name):
        if self.pictures:
            self.page.screenshot(path=Path(self.pictures) / f"{name}.png")


@pytest.fixture
def new_page(browser, url, request):
    """Makes pages; at the end, none may have had an error or asked another server for anything."""
    contexts, problems = [], []
    allowed = getattr(request.function, "allowed_errors", None)

    def make(width=1200, height=800, has_models=True, before=None, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        contexts.append(context)
        if before:
            context.add_init_script(before)
        page = context.new_page()
        page.set_default_timeout(8000)
        page.on("pageerror", lambda error: problems.append(f"exception: {error}"))
        page.on("console", lambda m: problems.append(f"console: {m.text}") if m.type == "error" else None)
        page.on("request", lambda r: None if r.url.startswith((url, "blob:")) else problems.append(f"request: {r.url}"))
        return Page(page, url, request.config.getoption("--screenshots")).open(has_models)

    yield make
    for context in contexts:
        context.close()
    unexpected = [p for p in problems if not (allowed and re.search(allowed, p))]
    assert not unexpected, unexpected


@pytest.fixture
def page(new_page):
    return new_page()


def allow_errors(pattern):
    """Marks a test whose page logs errors of this kind: browsers log each answer that is not 2xx."""

    def mark(function):
        function.allowed_errors = pattern
        return function

    return mark
