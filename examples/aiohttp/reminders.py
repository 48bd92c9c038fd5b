"""A page on which users add, see, move and remove their pending reminders."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from html import escape

from aiohttp import web
from refusals import delay_of, refusals

from delaylog import AsyncClient, AsyncMessage

DELAYLOG = web.AppKey("delaylog", AsyncClient)
routes = web.RouteTableDef()


async def remind(message: AsyncMessage) -> None:
    print(f"to {message.tags[0]}: {message.text}", flush=True)


async def delaylog(app: web.Application) -> AsyncIterator[None]:
    async with AsyncClient() as client:
        client.consumer("reminders")(remind)
        await client.start()
        app[DELAYLOG] = client
        yield


@routes.get("/users/{user}/reminders")
async def page(request: web.Request) -> web.Response:
    pending = request.app[DELAYLOG].browse(
        "reminders",
        state=["waiting", "ready", "leased"],
        tag=request.match_info["user"],
        bodies=True,
    )
    rows = [
        f"<li id='{escape(info.id)}'>{escape(info.text)}, "
        f"{datetime.fromtimestamp(info.deliver_at_ms / 1000, UTC):%d %B %H:%M} UTC</li>"
        async for info in pending
    ]
    return web.Response(text=f"<ul>{''.join(rows)}</ul>", content_type="text/html")


@routes.post("/users/{user}/reminders")
async def add(request: web.Request) -> web.Response:
    form = await request.post()
    sent = await request.app[DELAYLOG].send(
        "reminders",
        str(form.get("text", "")),
        tags=[request.match_info["user"]],
        delay=delay_of(form.get("minutes")),
    )
    return web.json_response({"id": sent.id}, status=201)


async def own_id(request: web.Request) -> str:
    reminder, user = request.match_info["id"], request.match_info["user"]
    if user not in (await request.app[DELAYLOG].get("reminders", reminder)).tags:
        raise web.HTTPNotFound
    return reminder


@routes.patch("/users/{user}/reminders/{id}")
async def move(request: web.Request) -> web.Response:
    delay, reminder = delay_of((await request.post()).get("minutes")), await own_id(request)
    changed = await request.app[DELAYLOG].reschedule("reminders", reminder, delay=delay)
    return web.json_response({"deliver_at_ms": changed.deliver_at_ms})


@routes.delete("/users/{user}/reminders/{id}")
async def remove(request: web.Request) -> web.Response:
    await request.app[DELAYLOG].cancel("reminders", await own_id(request))
    return web.Response(status=204)


async def make_app(_: list[str] | None = None) -> web.Application:
    app = web.Application(middlewares=[refusals])
    app.add_routes(routes)
    app.cleanup_ctx.append(delaylog)
    return app
