"""A site that sends mails later, and the worker that delivers them."""

import atexit
from datetime import timedelta

from flask import Flask, request

from delaylog import Client, Message, Retry

app = Flask(__name__)
client = Client()
atexit.register(client.close)


@client.consumer("mails", time_limit=timedelta(seconds=30))
def deliver(message: Message) -> None:
    if message.attempts == 1:
        raise Retry(delay=timedelta(milliseconds=100))
    print(f"to {message.json()['to']}, attempt {message.attempts}", flush=True)


@app.post("/mails")
def send() -> tuple[dict[str, str], int]:
    sent = client.send("mails", json={"to": request.form["to"]}, delay=timedelta(seconds=1))
    return {"id": sent.id}, 202
