"""Tables that fit a width: what names a row stays whole, everything else gives way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.cli.output import GAP, TEXT_WIDTH_MIN, TEXTS, fit

COLUMNS = ("id", "state", "due", "attempts", "key", "tags", "reason")
TIME = "2026-11-28T18:25:08.244+01:00"


def row(**cells: str) -> list[str]:
    known = {"id": "~3ce55006000000c9", "state": "dead", "due": TIME, "attempts": "1"}
    return [(known | cells).get(name, "") for name in COLUMNS]


def test_a_table_that_fits_is_as_it_is() -> None:
    rows = [row(), row(reason="boom")]
    table = fit(COLUMNS, rows, 200)
    assert (table.columns, table.rows, table.left_out, table.whole) == ([*COLUMNS], rows, [], True)


def test_times_lose_their_milliseconds_first() -> None:
    table = fit(COLUMNS[:4], [row()[:4]] * 2, 61)
    assert table.rows[0] == ["~3ce55006000000c9", "dead", TIME.replace(".244", ""), "1"]
    assert table.whole


def test_then_texts_lose_their_ends() -> None:
    table = fit(COLUMNS[:1] + COLUMNS[4:], [["~3ce55006000000c9", "k", "x" * 90, "y" * 90]], 80)
    assert [len(cell) for cell in table.rows[0][1:]] == [1, (80 - 17 - 3 - 6) // 2, 27]
    assert all(cell.endswith("…") for cell in table.rows[0][2:])
    assert (table.left_out, table.whole) == ([], False)


def test_then_columns_go_those_that_can_be_spared_first() -> None:
    rows = [row(reason="ValueError: cannot parse 10004", tags="a,b,c", key="user-17")] * 2
    table = fit(COLUMNS, rows, 72, ("state", "attempts", "tags"))
    assert table.columns == ["id", "due", "key", "reason"]
    assert table.left_out == ["state", "attempts", "tags"]


def test_a_schedule_of_all_topics_keeps_its_name() -> None:
    """The names of a row are more than its first column, which may be the namespace."""
    columns = ("namespace", "topic", "schedule", "state", "cron", "next")
    rows = [["default", "t" * 30, "s" * 40, "running", "0 9 * * 1-5", TIME]] * 2
    assert fit(columns, rows, 80).columns == ["topic", "schedule"]
    assert fit(columns, rows, 100, ("namespace",)).columns == list(columns[1:5])


def test_a_wide_character_takes_two_columns() -> None:
    table = fit(("id", "reason"), [["a", "日本語" * 20]], 24, measure=lambda text: 2 * len(text))
    assert table.widths == [4, 24 - 4 - GAP]
    assert table.rows[0] == ["a", "日本語日本語日本…"]


_CELL = st.text("ab ✓-", max_size=60)


@given(
    st.lists(st.tuples(*[_CELL] * len(COLUMNS)), min_size=1, max_size=4),
    st.integers(20, 200),
    st.permutations(COLUMNS),
)
def test_ids_stay_whole_and_the_rest_fits(
    rows: list[tuple[str, ...]], width: int, spare: list[str]
) -> None:
    table = fit(COLUMNS, rows, width, spare)
    assert table.columns[0] == "id"
    assert [cells[0] for cells in table.rows] == [cells[0] for cells in rows]
    assert sorted([*table.columns, *table.left_out]) == sorted(COLUMNS)
    widest = max(len(cells[0]) for cells in rows)
    total = sum(table.widths) + GAP * (len(table.widths) - 1)
    assert total <= width or (table.columns == ["id"] and widest > width)
    for at, name in enumerate(table.columns):
        for shown, cells in zip(table.rows, rows, strict=True):
            original = cells[COLUMNS.index(name)]
            cut = shown[at] != original
            assert not cut or (name in TEXTS and original.startswith(shown[at][:-1]))
            assert len(shown[at]) >= min(len(original), TEXT_WIDTH_MIN)
