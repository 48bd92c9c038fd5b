"""The OpenAPI 3.1 document of all HTTP APIs, built from the tables used for routing and checks."""

from delaylog.broker.web.openapi.document import PAGES, openapi_document

__all__ = ["PAGES", "openapi_document"]
