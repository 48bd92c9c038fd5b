"""The programs of docs/FRAMEWORKS.md, which are in examples/, each served by its framework: what is
sent in a request is handled later, and a stop leaves nothing behind.
"""

from __future__ import annotations

import json
import signal
import urllib.request
from importlib.util import find_spec

import pytest

from delaylog.client import Client
from tests.docs.examples import FRAMEWORKS, program_files
from tests.frameworks.conftest import ROOT, Site
from tests.waiting import await_that

LINES_MAX = 60
"""Of a program, without its blank lines and its docstring."""
DJANGO_SETTINGS = """
from shop.tasks_settings import TASKS

SECRET_KEY = "for a test"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "urls"
USE_TZ = True
"""
DJANGO_URLS = """
from django.urls import path
from shop.views import figures, order

urlpatterns = [path("order", order), path("figures", figures)]
"""


def about(example: str) -> pytest.MarkDecorator:
    """A test of one folder of examples/."""
    return pytest.mark.parametrize("site", [example], indirect=True)


def test_every_program_is_short() -> None:
    lines = {
        path: sum(map(bool, path.read_text().splitlines()[1:]))
        for example in FRAMEWORKS
        for path in program_files(example).values()
    }
    assert {path: count for path, count in lines.items() if count >= LINES_MAX} == {}


def test_the_page_names_every_program() -> None:
    page = (ROOT / "docs" / "FRAMEWORKS.md").read_text()
    for example in FRAMEWORKS:
        assert program_files(example)
        for name in program_files(example):
            assert f"(../examples/{example}/{name})" in page


@about("aiohttp")
def test_a_user_sees_the_reminders_that_are_to_come(site: Site, client: Client) -> None:
    words = ["-m", "aiohttp.web", "-H", "127.0.0.1", "-P", "PORT", "reminders:make_app"]
    site.start("python", *words)
    page = "/users/ann/reminders"
    assert site.ask("GET", page) == (200, "<ul></ul>")

    status, said = site.ask("POST", page, text="pay the <rent>", minutes=60)
    rent = json.loads(said)["id"]
    assert status == 201
    site.ask("POST", page, text="water the flowers", minutes=0.01)
    site.ask("POST", "/users/bob/reminders", text="call ann", minutes=30)

    site.wait_for("to ann: water the flowers")
    # What is being handled is still to come; its ack follows.
    await_that(lambda: site.ask("GET", page)[1].count("<li") == 1)
    assert f"<li id='{rent}'>pay the &lt;rent&gt;, " in site.ask("GET", page)[1]
    for minutes in ("abc", "", "nan", "inf", "1e12", "1e300", "-3", "0"):
        assert site.ask("POST", page, text="x", minutes=minutes)[0] == 400, minutes
        assert site.ask("PATCH", f"{page}/{rent}", minutes=minutes)[0] == 400, minutes
    assert site.ask("POST", page, text="x")[0] == 400

    due_ms = client.get("reminders", rent).deliver_at_ms
    status, said = site.ask("PATCH", f"{page}/{rent}", minutes=90)
    moved_ms = json.loads(said)["deliver_at_ms"]
    assert (status, moved_ms - due_ms > 1_799_000) == (200, True)
    assert client.get("reminders", rent).deliver_at_ms == moved_ms
    for method, fields in (("PATCH", {"minutes": 5}), ("DELETE", {})):
        assert site.ask(method, f"/users/bob/reminders/{rent}", **fields)[0] == 404
        assert site.ask(method, f"{page}/unknown", **fields)[0] == 404
    assert site.ask("DELETE", f"{page}/{rent}")[0] == 204
    assert site.ask("DELETE", f"{page}/{rent}") == (409, "too late: cancelled")
    assert site.ask("PATCH", f"{page}/{rent}", minutes=5) == (409, "too late: cancelled")
    assert site.ask("GET", page) == (200, "<ul></ul>")

    assert site.broker.stop() == 0
    for method in ("GET", "DELETE"):
        path = page if method == "GET" else f"{page}/{rent}"
        assert site.ask(method, path) == (503, "try again later")
    site.broker.start()
    await_that(lambda: site.ask("GET", page) == (200, "<ul></ul>"))

    assert site.stop() == [0]
    counts = client.stats("reminders").counts
    assert (counts.acked, counts.cancelled, counts.leased, counts.waiting) == (1, 1, 0, 1)


@about("fastapi")
def test_the_test_of_the_page_passes(site: Site) -> None:
    assert site.start("pytest", "-q", "-p", "no:cacheprovider", "test_carts.py").wait(60) == 0


@about("fastapi")
def test_an_order_that_is_not_paid_is_cancelled(site: Site, client: Client) -> None:
    site.start("uvicorn", "shop:app", "--port", "PORT")

    def place(number: int, pay_within_s: float) -> int:
        order = json.dumps({"number": number, "customer": "ann"}).encode()
        url = f"http://127.0.0.1:{site.port}/orders?pay_within_s={pay_within_s}"
        kind = {"content-type": "application/json"}
        return site.call(urllib.request.Request(url, order, kind))[0]

    assert place(1, 3_600) == place(2, 0.1) == 201
    site.wait_for("order 2 of ann is cancelled")
    for _ in range(2):
        assert site.ask("POST", "/orders/1/payment") == (200, '{"paid_in_time":true}')
        assert site.ask("POST", "/orders/2/payment") == (200, '{"paid_in_time":false}')
    assert site.ask("POST", "/orders/9/payment")[0] == 404

    # uvicorn ends by the signal once the application has shut down.
    assert site.stop() == [-signal.SIGTERM]
    counts = client.stats("orders").counts
    assert (counts.acked, counts.cancelled, counts.leased) == (1, 1, 0)

    site.start("uvicorn", "shop:app", "--port", "PORT")
    site.ask("GET", "/docs")
    assert site.broker.stop() == 0
    assert place(3, 3_600) == 503
    site.broker.start()
    assert place(3, 3_600) == 201


@about("flask")
def test_a_worker_beside_the_site_delivers_mails(site: Site, client: Client) -> None:
    site.start("flask", *["--app", "mails", "run", "--port", "PORT"])
    site.start("delaylog", "worker", "mails:client", "--processes", "2")
    status, said = site.ask("POST", "/mails", to="ann@example.org")
    assert status == 202
    site.wait_for("to ann@example.org, attempt 2")

    site.stop()
    assert client.get("mails", json.loads(said)["id"]).state == "acked"


def for_this_django(site: Site) -> str:
    """The package of tasks that this Django has; the programs of the site use it then."""
    if find_spec("django.tasks") is None:
        return "django_tasks"
    for program in site.folder.glob("shop/**/*.py"):
        program.write_text(program.read_text().replace("django_tasks", "django.tasks"))
    return "django.tasks"


@about("django")
def test_a_task_of_django_runs_after_its_time(site: Site, client: Client) -> None:
    package = for_this_django(site)
    (site.folder / "settings.py").write_text(DJANGO_SETTINGS)
    (site.folder / "urls.py").write_text(DJANGO_URLS)
    if package == "django_tasks":
        with (site.folder / "settings.py").open("a") as settings:
            settings.write('INSTALLED_APPS.append("django_tasks")\n')
    site.start("django-admin", "runserver", "--settings", "settings", "--noreload", "PORT")
    site.start("django-admin", "run_tasks", "--settings", "settings")
    status, said = site.ask("GET", "/order?user=ann")
    assert status == 200
    message = client.get("mails", json.loads(said)["task"])
    assert message.sent_at_ms is not None
    assert 500 < message.deliver_at_ms - message.sent_at_ms <= 1_000

    _, said = site.ask("GET", "/figures")
    report = json.loads(said)["task"]
    site.wait_for(f"report of monday, attempt 2 of {report}")
    site.wait_for("pay, ann")
    log = site.log()
    assert site.stop(tracebacks=1)[1] == 0
    for topic, sent in [("mails", message.id), ("default", report)]:
        assert client.get(topic, sent).state == "acked"
        assert client.get_topic(topic).settings.order == "priority"
    assert client.get("default", report).priority == -5
    assert log.count("RuntimeError: the figures are late") == 1
