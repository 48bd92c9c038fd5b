"""When leases are extended and when they are over, by a clock of numbers."""

from __future__ import annotations

from delaylog.client.workers.leases import Held, Hold, LeaseBook
from tests.client.rows import received

LEASE_S = 10.0


def begun(book: LeaseBook, at_s: float) -> Hold:
    hold = book.begun(at_s, desk=None, port=0)
    hold.open.add(Held(received([1])[0], hold, "k"))
    return hold


def test_a_lease_is_extended_when_half_of_it_is_gone() -> None:
    book = LeaseBook(LEASE_S)
    hold = begun(book, 100.0)
    assert book.next_at_s() == 105.0
    assert book.due(104.9) == ([], [])
    assert book.due(105.0) == ([hold], [])
    book.extended(hold, 105.0)
    assert hold.until_s == 115.0
    assert book.next_at_s() == 110.0


def test_what_nobody_answers_is_tried_again_and_then_over() -> None:
    book = LeaseBook(LEASE_S)
    hold = begun(book, 0.0)
    now_s, tries = 5.0, 0
    while True:
        extend, over = book.due(now_s)
        if over:
            break
        assert extend == [hold]
        tries += 1
        book.missed(hold, now_s)
        again_s = book.next_at_s()
        assert again_s is not None
        now_s = again_s
    assert over == [hold]
    assert now_s == 10.0
    assert tries >= 9
    assert book.next_at_s() is None


def test_leases_come_in_the_order_of_their_times() -> None:
    book = LeaseBook(LEASE_S)
    first, second = begun(book, 0.0), begun(book, 1.0)
    assert book.due(6.0) == ([first, second], [])
