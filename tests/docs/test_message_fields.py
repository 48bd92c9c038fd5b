"""Each field of the table of message fields is documented, and offered, on every interface."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from delaylog.broker.calls.forms.bulk_bodies import decode_arrow
from delaylog.broker.cli.parser import make_parser
from delaylog.broker.engine.limits import Limits
from delaylog.broker.web.openapi import openapi_document
from delaylog.client.models import NewMessage
from delaylog.contract.members import MemberError
from delaylog.contract.message_fields import FIELDS, MERGE, TAGS, Field
from tests.broker.calls.forms.arrow_streams import stream

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
NAMES: Final = [field.name for field in FIELDS]


def between(file: str, start: str, end: str) -> str:
    text = (DOCS / file).read_text()
    return text[text.index(start) :].partition(end)[0]


@pytest.mark.parametrize("name", NAMES)
def test_documents_name_it(name: str) -> None:
    assert f"`{name}`" in between("HTTP.md", "## Send\n", "\n## ")
    assert f"- `{name.removesuffix('_ms')}`: " in between("SDK.md", "## Sending\n", "`Sent` has")


@pytest.mark.parametrize("field", FIELDS, ids=NAMES)
def test_dl_send_is_documented_with_its_option(field: Field) -> None:
    assert f"[{field.option.decode()} " in between("REDIS.md", "- `DL.SEND ", "\n- ")


def test_the_openapi_document_and_the_sdk_have_all() -> None:
    schemas = openapi_document(Limits())["components"]["schemas"]
    message = next(each for each in schemas.values() if each.get("title") == "Message to send")
    assert {*NAMES} <= message["properties"].keys()
    own = {name.removesuffix("_ms") for name in NAMES}
    assert own <= NewMessage.__dataclass_fields__.keys()


@pytest.mark.parametrize("field", FIELDS, ids=NAMES)
def test_the_command_line_has_it(field: Field) -> None:
    flag = "--tag" if field.member is TAGS else f"--{field.name.replace('_', '-')}"
    written = {"merge": "keep", "headers": '{"a": "b"}', "ttl_ms": "1s", "backoff": "1s"}
    value = written.get(field.name, "1")
    flag = flag.removesuffix("-ms")
    arguments = make_parser("send").parse_args(["send", "t", "x", flag, value])
    assert field.member.check(getattr(arguments, field.name))


@pytest.mark.parametrize("field", [each for each in FIELDS if each.member is not MERGE])
def test_arrow_knows_its_column(field: Field) -> None:
    """By the refusal of another type, which names the right one."""
    columns = {"value": ["x"], "delay_ms": [0], field.name: pa.array([None], pa.date32())}
    with pytest.raises(Exception, match=f"{field.name} must be") as caught:
        decode_arrow(stream(pa.record_batch(columns)), Limits())
    assert not isinstance(caught.value, MemberError), "the column is refused, not a value"
