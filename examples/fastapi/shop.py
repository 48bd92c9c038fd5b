"""An order that is not paid in time is cancelled by a task."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from delaylog import AsyncClient, TimerState

client = AsyncClient(timeout=timedelta(seconds=3))
orders: dict[int, str] = {}  # stands for a table


class Order(BaseModel):
    number: int
    customer: str


@client.task("orders")
async def cancel_unpaid(number: int, customer: str) -> None:
    orders[number] = "cancelled"
    print(f"order {number} of {customer} is cancelled", flush=True)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with client:
        await client.start()
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place(order: Order, pay_within_s: float = 1800) -> dict[str, int]:
    task = cancel_unpaid.having(id=f"unpaid-{order.number}")
    orders[order.number] = "unpaid"
    try:
        sent = await task.send_in(timedelta(seconds=pay_within_s), order.number, order.customer)
    except ConnectionError as error:
        raise HTTPException(503, "try again later") from error
    return {"cancelled_at_ms": sent.deliver_at_ms}


@app.post("/orders/{number}/payment")
async def pay(number: int) -> dict[str, bool]:
    if number not in orders:
        raise HTTPException(404, "there is no such order")
    if orders[number] == "unpaid":
        try:
            state = await client.timer(f"unpaid-{number}", topic="orders").cancel()
        except ConnectionError as error:
            raise HTTPException(503, "try again later") from error
        if state is not TimerState.FIRED:
            orders[number] = "paid"
    return {"paid_in_time": orders[number] == "paid"}
