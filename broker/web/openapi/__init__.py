"""The OpenAPI 3.1 document of every face, made from the declarations that route and validate."""

from delaylog.broker.web.openapi.document import openapi_document

__all__ = ["openapi_document"]
