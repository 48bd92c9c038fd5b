"""What a page answers when a call to the broker fails, or its input is wrong."""

from datetime import timedelta

from aiohttp import web
from aiohttp.typedefs import Handler

from delaylog import NotFound, TooLate


def delay_of(minutes: object) -> timedelta:
    """The delay of a form. ValueError or OverflowError for what is no time to come."""
    delay = timedelta(minutes=float(str(minutes)))
    if delay <= timedelta(0):
        raise ValueError("a reminder has a time to come")
    return delay


@web.middleware
async def refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except NotFound:
        raise web.HTTPNotFound from None
    except TooLate as error:
        raise web.HTTPConflict(text=f"too late: {error.state}") from None
    except (ValueError, OverflowError) as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    except ConnectionError:
        raise web.HTTPServiceUnavailable(text="try again later") from None
