"""The OpenAPI 3.1 document of all HTTP APIs, built from the tables used for routing and checks."""

from delaylog.broker.web.openapi.document import openapi_document

__all__ = ["openapi_document"]
