"""The oracle: suggests which node should lead; and elections over the connections between nodes.

A suggestion may be wrong or late, and two nodes may be suggested at once; epochs make that
harmless. The oracle is polled, so a lost suggestion does no harm either.

`PeerOracle` is a `LeaderOracle` without a network of its own. A node that misses its leader asks
the other voters (CANVASS). A voter supports it unless it hears a leader itself, or has a more
complete log. With a majority the oracle suggests its node, and replication's PREPARE and PROMISE
decide. So nothing here is durable: the promise is the vote, and an election that nobody else wants
changes no epoch. Time, randomness and sending are arguments.

    leader silent for 250 to 500 ms, or its process has ended
        -> CANVASS to all voters, repeated with backoff
        -> a majority supports it: this node is chosen
        -> it is chosen while it tries to lead, and while a majority follows it

All times are stretched when the machine is busy (`Delays`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, Protocol

from delaylog.replication.configuration import Configuration
from delaylog.replication.messages import Canvass, Message, Role, Support

# ------------------------------------------------------------------------ what replication asks


class LogState(NamedTuple):
    """How complete a node's log is: an oracle prefers the greatest."""

    last_epoch: int = 0
    end: int = 0


class LeaderOracle(Protocol):
    """Suggests the leader."""

    def suggests(self, now_ms: int) -> bool:
        """Whether this node should lead now."""

    def leader(self, now_ms: int) -> int | None:
        """The node that probably leads, for clients; None if unknown."""

    def resign(self, now_ms: int, until_ms: int) -> None:
        """This node cannot lead: have another one elected, and stay out until then."""

    def transfer(self, target: int, now_ms: int) -> None:
        """A planned hand-over has begun: have the target elected."""


# ---------------------------------------------------------------------- elections between peers

DELAY_MS_FREE: Final = 100
"""The longest delay that stretches nothing: a round every 50 ms, and as much again."""
DELAY_MS_MAX: Final = 800
"""A longer pause is a stop of a process or a machine, not a delay, and says nothing about load."""
FACTOR_MAX: Final = 4.0
"""A leader counts as heard for 1 s at most; see `stretched_max_ms` in `PeerTiming`."""
FADE_MS: Final = 60_000
"""A delay counts for less and less, and not at all after this time."""


class Delays:
    """How late this node and its peers run, which stretches every silence after which a node acts.

    A busy machine delays rounds and answers without any fault. The longest recent delay, which
    fades within a minute, gives one factor for all times of an election; without delays it is 1.
    """

    def __init__(self) -> None:
        self._longest_ms = 0
        self._at_ms = 0

    def note(self, delay_ms: int, now_ms: int) -> None:
        """Something came this late, or this long after the one before it."""
        if self.longest_ms(now_ms) <= delay_ms <= DELAY_MS_MAX:
            self._longest_ms, self._at_ms = delay_ms, now_ms

    def longest_ms(self, now_ms: int) -> float:
        """The longest recent delay; an older one counts for less."""
        age_ms = min(max(now_ms - self._at_ms, 0), FADE_MS)
        return self._longest_ms * (1 - age_ms / FADE_MS)

    def factor(self, now_ms: int) -> float:
        """By how much every silence is stretched: 1 to `FACTOR_MAX`."""
        return min(max(self.longest_ms(now_ms) / DELAY_MS_FREE, 1.0), FACTOR_MAX)


LATE_MS: Final = 50
"""Inputs come at least every 20 ms. A longer pause is a delay of this node, which stretches all
silences at once, before it has read what came meanwhile."""


@dataclass(frozen=True, slots=True)
class PeerTiming:
    """Milliseconds."""

    silence_ms: int = 250
    """A leader counts as heard, or as followed, for this time after its last message, or after a
    majority's last answers. It sends a round every 50 ms."""
    election_max_ms: int = 500
    """A node that hears no leader canvasses after a random time from `silence_ms` to this."""
    stretched_max_ms: int = 1_500
    """A busy machine stretches that time to this at most. As much again is left for a canvass, a
    promise and the first frame, so that a leader that hangs is replaced within 3 s."""
    guard_min_ms: int = 750
    guard_max_ms: int = 1_250
    """Bounds of the random wait before a canvass while another oracle works, which should have
    elected a leader by then."""
    ended_max_ms: int = 40
    """Upper bound of that wait after the leader's process has ended. It is random so that rarely
    two nodes canvass at once."""
    retry_min_ms: int = 30
    retry_max_ms: int = 500
    """Bounds of the time between two canvasses, which doubles."""
    support_ms: int = 100
    """For this time a voter supports no second candidate."""
    chosen_ms: int = 1_000
    """How long a chosen node may take until it is a candidate; see Timing.serve_deadline_ms."""

    def __post_init__(self) -> None:
        assert self.silence_ms < self.election_max_ms < self.guard_min_ms < self.guard_max_ms
        assert self.guard_max_ms <= self.stretched_max_ms
        assert DELAY_MS_MAX < FACTOR_MAX * self.silence_ms < self.stretched_max_ms
        assert self.retry_min_ms < self.support_ms < self.retry_max_ms < self.chosen_ms


class View(NamedTuple):
    """What the oracle sees of its node at one moment."""

    configuration: Configuration
    votes: bool
    """Whether this node may promise."""
    log: LogState | None
    """None while this node must not lead: a learner, one that is unfit, or has much to apply."""
    role: Role
    gate_age_ms: int | None
    """The age of the newest round whose tick a majority has taken, while this node leads."""
    peers: Collection[int]
    """Connected nodes."""


class PeerOracle:
    """The oracle of one node."""

    def __init__(
        self,
        node: int,
        *,
        view: Callable[[], View | None],
        send: Callable[[int, Message], None],
        random: Random,
        timing: PeerTiming | None = None,
    ) -> None:
        """`view` returns None while this node takes no part."""
        self._node = node
        self._view = view
        self._send = send
        self._random = random
        self._timing = timing or PeerTiming()
        self.delays = Delays()
        self.guards = False
        """Whether another oracle works, which goes first."""
        self._nominated = False
        self._leader: int | None = None
        self._heard_ms: int | None = None
        """When the leader was heard; None once its process has ended."""
        self._deposed: tuple[int, int] | None = None
        """(leader, when it was heard) of the leader before this one."""
        self._due_ms: int | None = None
        """When to canvass next, if no leader is heard by then."""
        self._retry_ms = self._timing.retry_min_ms
        self._round = 0
        self._support: set[int] | None = None
        """The supporters of the present round; None without one."""
        self._supported: tuple[int, int] | None = None
        """(candidate, until when no other one is supported)."""
        self._chosen_ms: int | None = None
        """This node is chosen: when that was last seen to be right."""
        self._resigned_until_ms = 0
        self._looked_ms: int | None = None
        self._gate_age_ms = 0

    # ------------------------------------------------------------------ LeaderOracle

    def suggests(self, now_ms: int) -> bool:
        return self._chosen_ms is not None and now_ms >= self._resigned_until_ms

    def leader(self, now_ms: int) -> int | None:
        return self._node if self.suggests(now_ms) else self.hears(now_ms)

    def resign(self, now_ms: int, until_ms: int) -> None:
        self._resigned_until_ms = max(self._resigned_until_ms, until_ms)
        self._chosen_ms = self._support = None
        self._wait(now_ms)

    def transfer(self, target: int, now_ms: int) -> None:
        """Nothing to do: TAKEOVER makes the target a candidate, and its rounds end this choice."""

    # ------------------------------------------------------------------ another oracle

    def nominate(self, now_ms: int, *, chosen: bool) -> None:
        """Note whether another oracle chooses this node now.

        If the other oracle has just chosen this node, and no leader is heard, this node canvasses
        at once. So the other oracle deposes no leader that others hear.
        """
        if chosen and not self._nominated and self._due_ms is not None:
            self._due_ms = min(self._due_ms, now_ms)
        self._nominated = chosen

    # ------------------------------------------------------------------ the leader

    def silence_ms(self, now_ms: int) -> float:
        """For how long a leader counts as heard, or as followed, without another message."""
        return self._timing.silence_ms * self.delays.factor(now_ms)

    def hears(self, now_ms: int) -> int | None:
        """The other node that leads; None if none was heard recently."""
        heard_ms = self._heard_ms
        if heard_ms is None or now_ms - heard_ms >= self.silence_ms(now_ms):
            return None
        return self._leader

    def hear(self, leader: int, now_ms: int) -> None:
        """A round of the promised epoch came from `leader`."""
        self._catch_up(now_ms)
        if self._heard_ms is not None and self._leader is not None:
            if leader == self._leader:
                self.delays.note(now_ms - self._heard_ms, now_ms)
            else:
                self._deposed = (self._leader, self._heard_ms)
        self._leader, self._heard_ms = leader, now_ms
        self._chosen_ms = self._support = None
        self._wait(now_ms)

    def hear_deposed(self, leader: int, now_ms: int) -> None:
        """A round of an older epoch came: if its sender was deposed, it was late, not gone."""
        if self._deposed is not None and self._deposed[0] == leader:
            self.delays.note(now_ms - self._deposed[1], now_ms)
            self._deposed = None

    def ended(self, peer: int, now_ms: int) -> None:
        """The peer has closed its connection, as the kernel does when a process ends."""
        if peer == self._leader and self._heard_ms is not None:
            self._heard_ms = None
            self._wait(now_ms)
            self._canvass_soon(now_ms)

    # ------------------------------------------------------------------ canvassing

    def look(self, now_ms: int) -> None:
        """Do what is due; called every 20 ms."""
        self._catch_up(now_ms)
        view = self._view()
        if view is None:
            self._chosen_ms = self._support = self._due_ms = None
            return
        self._judge(view, now_ms)
        if self._due_ms is None:
            self._wait(now_ms)
        if not self._may_stand(view, now_ms):
            return
        alone = view.configuration.agree([self._node])
        if alone or (self._due_ms is not None and now_ms >= self._due_ms):
            self._canvass(view, view.log or LogState(), now_ms)

    def receive(self, source: int, message: Canvass | Support, now_ms: int) -> None:
        """A message of another node's oracle came."""
        self._catch_up(now_ms)
        view = self._view()
        if view is None:
            return
        if isinstance(message, Canvass):
            granted = self._supports(source, message, view, now_ms)
            if granted:
                self._supported = (source, now_ms + self._timing.support_ms)
                self._support = None
                self._wait(now_ms)
            elif self._is_better(message, view) and self._may_stand(view, now_ms):
                # Both hear no leader, and only this node can be chosen.
                self._canvass_soon(now_ms)
            self._send(source, Support(message.round, granted))
        elif self._support is not None and message.granted and message.round == self._round:
            self._support.add(source)
            self._count(view, now_ms)

    def _canvass(self, view: View, log: LogState, now_ms: int) -> None:
        timing = self._timing
        self._round += 1
        self._support = {self._node}
        self._due_ms = now_ms + self._random.randint(self._retry_ms // 2, self._retry_ms)
        self._retry_ms = min(2 * self._retry_ms, timing.retry_max_ms)
        for peer in view.configuration.deciding:
            if peer != self._node and peer in view.peers:
                self._send(peer, Canvass(self._round, *log))
        self._count(view, now_ms)

    def _count(self, view: View, now_ms: int) -> None:
        if (
            self._support is not None
            and view.configuration.agree(self._support)
            and self._may_stand(view, now_ms)
        ):
            self._support = None
            self._chosen_ms = now_ms

    def _may_stand(self, view: View, now_ms: int) -> bool:
        return (
            self._chosen_ms is None
            and now_ms >= self._resigned_until_ms
            and view.role is Role.FOLLOWER
            and view.log is not None
            and self.hears(now_ms) is None
        )

    def _supports(self, source: int, message: Canvass, view: View, now_ms: int) -> bool:
        """Whether this node would promise the candidate's epoch."""
        if not view.votes or source in view.configuration.removed or self.suggests(now_ms):
            return False
        if self.hears(now_ms) not in (None, source) or self._is_followed(view, now_ms):
            return False
        if self._supported is not None:
            other, until_ms = self._supported
            if other != source and now_ms < until_ms:
                return False
        if now_ms < self._resigned_until_ms or view.log is None:
            # A node that cannot lead has no preference: its log must not keep others from leading.
            return True
        if self._is_better(message, view):
            return False
        # If both canvass with equal logs, the lower index goes on.
        equal = view.log == (message.last_epoch, message.end)
        return self._support is None or not equal or source < self._node

    def _is_better(self, message: Canvass, view: View) -> bool:
        """Whether this node's log is more complete than the candidate's."""
        return view.log is not None and view.log > (message.last_epoch, message.end)

    # ------------------------------------------------------------------ being chosen

    def _judge(self, view: View, now_ms: int) -> None:
        """Whether this node is still chosen: while it tries to lead, and while it is followed."""
        limit_ms: float = self._timing.chosen_ms
        if view.role is Role.SERVING:
            limit_ms = self.silence_ms(now_ms)
            age_ms = view.gate_age_ms
            if age_ms is not None:
                if age_ms < self._gate_age_ms:
                    self.delays.note(self._gate_age_ms, now_ms)
                self._gate_age_ms = age_ms
                if self._chosen_ms is not None or age_ms < limit_ms:
                    # A node that took over in a hand-over is chosen, too.
                    self._chosen_ms = max(self._chosen_ms or 0, now_ms - age_ms)
        elif view.role is not Role.FOLLOWER and self._chosen_ms is not None:
            # Replication has deadlines of its own for each step.
            self._chosen_ms = now_ms
        if view.role is not Role.SERVING:
            self._gate_age_ms = 0
        if self._chosen_ms is not None and now_ms - self._chosen_ms >= limit_ms:
            self._chosen_ms = None
            self._wait(now_ms)

    def _is_followed(self, view: View, now_ms: int) -> bool:
        age_ms = view.gate_age_ms
        return age_ms is not None and age_ms < self.silence_ms(now_ms)

    # ------------------------------------------------------------------ time

    def _wait(self, now_ms: int) -> None:
        """Canvass after a whole election time without a leader."""
        timing, factor = self._timing, self.delays.factor(now_ms)
        least = timing.silence_ms * factor
        most = min(timing.election_max_ms * factor, timing.stretched_max_ms)
        if self._nominated:
            most = least
        elif self.guards:
            least, most = max(least, timing.guard_min_ms), max(most, timing.guard_max_ms)
        self._due_ms = now_ms + round(self._random.uniform(least, most))
        self._retry_ms = timing.retry_min_ms

    def _canvass_soon(self, now_ms: int) -> None:
        """Canvass soon, at a random time: so that rarely two nodes do it at once."""
        soon_ms = now_ms + self._random.randint(0, self._timing.ended_max_ms)
        self._due_ms = soon_ms if self._due_ms is None else min(self._due_ms, soon_ms)

    def _catch_up(self, now_ms: int) -> None:
        """Stretch silences if this node was late, and do not count a time in which it was stopped.

        A pause of up to `DELAY_MS_MAX` counts as silence: on a busy machine every look is late, and
        a node that left all pauses out would never miss its leader.
        """
        late_ms = 0 if self._looked_ms is None else now_ms - self._looked_ms
        self._looked_ms = now_ms
        if LATE_MS < late_ms <= DELAY_MS_MAX:
            self.delays.note(late_ms, now_ms)
        elif late_ms > DELAY_MS_MAX:
            if self._heard_ms is not None:
                self._heard_ms += late_ms
            if self._due_ms is not None:
                self._due_ms += late_ms
            if self._chosen_ms is not None:
                # The answers of the others wait in the socket, or their refusals.
                self._chosen_ms += late_ms
