"""Orders of answers and events, which a network does not give twice: no newer one is lost.

The modules of the page run alone, with a stream and a `fetch` that the test answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from playwright.sync_api import Page

from tests.broker.conftest import Broker

NO_PAGE: Final = "/ui/lib/THIRD_PARTY.txt"
"""A document of the broker's origin without scripts."""
HARNESS: Final = """async () => {
    const asked = [];
    window.fetch = (url) => new Promise((resolve) => asked.push({url, resolve}));
    window.EventSource = class {
        constructor() { window.stream = this; }
        close() {}
    };
    const settle = () => new Promise((done) => setTimeout(done, 100));
    window.answer = async (url, value) => {
        const at = asked.findIndex((each) => each.url === url);
        if (at < 0) throw new Error(`nobody asks for ${url}`);
        const headers = {"Content-Type": "application/json"};
        asked.splice(at, 1)[0].resolve(new Response(value, {headers}));
        await settle();
    };
    window.tell = async (answers) => {
        window.stream.onmessage({data: JSON.stringify(answers)});
        await settle();
    };
    window.refresh = async () => { window.shown.refresh(); await settle(); };
    window.waiting = () => asked.map(({url}) => url);
    const {html, render} = await import("/ui/core/view.js");
    const {useLive} = await import("/ui/core/live.js");
    const {get} = await import("/ui/core/api.js");
    const both = async (signal) => [await get("/one", {}, signal), await get("/two", {}, signal)];
    const Shown = () => { window.shown = useLive(both, []); return null; };
    render(html`<${Shown} />`, document.body);
    await settle();
    await answer("/one", "1");
    await answer("/two", "1");
}"""


@pytest.fixture
def page(broker: Broker, look: Callable[..., Any]) -> Page:
    """It shows the answers of two reads, both 1, and has a stream of both."""
    window = look(broker.url)
    # Such a document names no icon, so the browser looks for one.
    window.refused = {404}
    page: Page = window.page
    page.goto(broker.url + NO_PAGE)
    page.evaluate(HARNESS)
    assert shown(page) == [1, 1]
    return page


def shown(page: Page) -> Any:
    """What the page shows."""
    return page.evaluate("shown.data")


def test_an_event_shows(page: Page) -> None:
    page.evaluate("tell({'/two': 2})")
    assert shown(page) == [1, 2]


def test_an_event_while_the_page_waits_for_another_answer(page: Page) -> None:
    """The first read was taken before the event that changes it, and the second comes after."""
    page.evaluate("tell({'/two': null})")
    assert page.evaluate("waiting()") == ["/two"]
    page.evaluate("tell({'/one': 2})")
    page.evaluate("answer('/two', '2')")
    assert shown(page) == [2, 2]


def test_an_answer_that_is_older_than_an_event(page: Page) -> None:
    """The stream has told of a newer one while the answer was on its way."""
    page.evaluate("tell({'/two': null})")
    page.evaluate("tell({'/two': 3})")
    page.evaluate("answer('/two', '2')")
    assert shown(page) == [1, 3]
    page.evaluate("tell({'/one': 4})")
    assert shown(page) == [4, 3]


def test_an_answer_that_is_older_than_a_change(page: Page) -> None:
    """Whoever has changed something looks again, and not at an answer from before the change."""
    page.evaluate("refresh()")
    assert page.evaluate("waiting()") == ["/one"]
    page.evaluate("refresh()")
    page.evaluate("answer('/one', '1')")
    page.evaluate("answer('/two', '1')")
    page.evaluate("answer('/one', '2')")
    assert shown(page)[0] == 2
