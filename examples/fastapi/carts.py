"""A cart that rests for half an hour is reminded of; the application takes its client."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from fastapi import FastAPI

from delaylog import AsyncClient, AsyncMessage, AsyncQueueClient


def make_app(opening: AbstractAsyncContextManager[AsyncQueueClient]) -> FastAPI:
    reminded: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with opening as queue:

            @queue.consumer("carts")
            async def remind(message: AsyncMessage) -> None:
                reminded.append(message.id)

            app.state.queue = queue
            await queue.start()
            yield

    app = FastAPI(lifespan=lifespan)

    @app.put("/carts/{user}")
    async def touch(user: str) -> int:
        queue: AsyncQueueClient = app.state.queue
        timer = queue.timer(user, topic="carts")
        return (await timer.set(timedelta(minutes=30))).deliver_at_ms

    @app.get("/reminded")
    async def list_reminded() -> list[str]:
        return reminded

    return app


def app() -> FastAPI:
    """For `uvicorn --factory carts:app`."""
    return make_app(AsyncClient())
