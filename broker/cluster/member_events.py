"""What a member does and logs for each event of replication."""

from __future__ import annotations

import logging
from typing import Protocol

from delaylog.broker.cluster.copies.exchange import Copies
from delaylog.broker.cluster.leading.lead import Lead, tick_facts
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.broker.cluster.member_oracle import MemberOracle
from delaylog.broker.cluster.member_view import MemberView
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.broker.cluster.watch.member_watch import MemberWatch
from delaylog.replication.events import (
    Event,
    HandoverFailed,
    NeedsCopy,
    Readmitted,
    Resigned,
    Serving,
    SteppedDown,
    TakeoverAsked,
    Truncated,
)

log = logging.getLogger("delaylog.cluster")


class EventMember(MemberView, Protocol):
    """What the actions need of their member."""

    counts: MemberCounts
    copies: Copies
    members: KnownMembers
    oracle: MemberOracle
    watch: MemberWatch


class EventActions:
    """The actions of one member. All methods belong to the loop's thread."""

    def __init__(self, member: EventMember, succession: Succession, lead: Lead) -> None:
        self._member = member
        self._succession = succession
        self._lead = lead

    def act(self, event: Event) -> None:
        """Carry out one event."""
        member = self._member
        match event:
            case Serving():
                extra = tick_facts(event.tick, "epoch", event.epoch)
                log.info("this node leads, epoch %#x", event.epoch, extra=extra)
                member.counts.leaderships += 1
                self._succession.serve(event)
            case SteppedDown():
                member.copies.giver.abort("this node no longer leads")
                log.info("this node no longer leads, epoch %#x", event.epoch)
                self._lead.end(event)
            case Truncated():
                member.copies.giver.abort("the log was cut")
                text = "the log was cut at %d: no leader had the frames from there on"
                log.warning(text, event.position)
            case Resigned():
                self._resigned(event)
            case TakeoverAsked():
                log.info("the leader hands over to this node")
            case HandoverFailed():
                log.warning("node %d did not take over", event.target)
                self._lead.handover_failed()
            case NeedsCopy():
                if event.node == member.config.node:
                    log.warning("this log is too far behind to lead: another node has to")
                else:
                    log.warning("the log of node %d is too far behind for this one", event.node)
            case Readmitted():
                self._readmitted()

    def _resigned(self, event: Resigned) -> None:
        self._member.counts.resigned += 1
        missing = ", ".join(self._member.watch.missing_voters()) or "none"
        log.warning(
            "this node did not become leader in time and stays out of elections for a while; "
            "voters that are not connected: %s",
            missing,
        )
        self._member.oracle.resign(self._member.machine.boot_ms(), event.until_ms)

    def _readmitted(self) -> None:
        member = self._member
        if member.config.node in member.members.deciding:
            log.warning("this node is a voter again")
        else:
            log.info("this node has the log; it votes once it is promoted")
        # The others remember a voter's folder when it connects: from now on this is one.
        for peer in member.transport.connected():
            member.transport.drop(peer, "this node is a voter again")
