"""Calls of a topic, its messages and its groups, in any namespace."""

from __future__ import annotations

from typing import Final

from delaylog.broker.calls import control, control_many, groups, listing, messages, shapes, topics
from delaylog.broker.calls.operations.operation import Operation, Takes

TOPICS: Final = "/v1/topics"
TOPIC: Final = "/v1/topics/{topic}"
MESSAGE: Final = "/v1/topics/{topic}/messages/{id}"
GROUPS: Final = "/v1/topics/{topic}/groups"
GROUP: Final = "/v1/topics/{topic}/groups/{group}"

TOPIC_CALLS: Final = (
    Operation(
        "GET",
        TOPICS,
        topics.list_topics,
        "listTopics",
        "Topics by name, page by page.",
        {200: "Topics"},
        query=(shapes.TOPICS_LIMIT, shapes.CURSOR, shapes.PREFIX),
    ),
    Operation(
        "GET", TOPIC, topics.get_topic, "getTopic", "A topic.", {200: "Topic"}, problems=(404,)
    ),
    Operation(
        "PUT",
        TOPIC,
        topics.put_topic,
        "putTopic",
        "Make a topic, or replace its settings.",
        {200: "Topic", 201: "Topic"},
        Takes("Settings", needed=False),
        problems=(409, 415, 429),
    ),
    Operation(
        "DELETE",
        TOPIC,
        topics.delete_topic,
        "deleteTopic",
        "Drop a topic in which nothing lives, or any by force.",
        {200: "Done"},
        query=(shapes.DROP_FORCE,),
        problems=(404, 409),
    ),
    Operation(
        "GET",
        f"{TOPIC}/stats",
        topics.topic_stats,
        "getStats",
        "Counts of a topic.",
        {200: "Stats"},
        query=(shapes.DELAY_BUCKETS, shapes.GROUP),
        problems=(404,),
    ),
    Operation(
        "GET",
        f"{TOPIC}/forecast",
        listing.forecast,
        "getForecast",
        "Messages to come, per minute and per hour.",
        {200: "Forecast"},
        query=(shapes.MINUTES, shapes.HOURS, shapes.GROUP),
        problems=(404,),
    ),
    Operation(
        "GET",
        f"{TOPIC}/messages",
        listing.list_messages,
        "listMessages",
        "Messages in due order, page by page.",
        {200: "Listed"},
        query=shapes.LIST,
        problems=(404,),
    ),
    Operation(
        "GET",
        f"{TOPIC}/dead",
        listing.list_dead,
        "listDead",
        "Dead letters with why and how they died.",
        {200: "DeadLetters"},
        query=shapes.DEAD,
        problems=(404,),
    ),
    Operation(
        "POST",
        f"{TOPIC}/messages",
        messages.send_messages,
        "send",
        "Send one message, several, or a bulk or Arrow body.",
        {200: "Sent"},
        Takes(shapes.MESSAGE, many=True, bulk=True, arrow=True),
        query=(shapes.ACKS,),
        problems=(409, 415, 429, 507),
        bulk_answer=True,
    ),
    Operation(
        "POST",
        f"{TOPIC}/receive",
        messages.receive_messages,
        "receive",
        "Take what is ready under a lease, or wait for it.",
        {200: "Received"},
        Takes(shapes.RECEIVE, bulk=True, needed=False),
        problems=(404, 415),
        bulk_answer=True,
    ),
    Operation(
        "POST",
        f"{TOPIC}/peek",
        messages.peek_messages,
        "peek",
        "Look at what is ready.",
        {200: "Peeked"},
        Takes(shapes.RECEIVE, needed=False),
        problems=(404, 415),
    ),
    *(
        Operation(
            "POST",
            f"{TOPIC}/{action}",
            messages.settle_messages,
            action,
            doc,
            {200: "Settled"},
            Takes(shapes.SETTLE, bulk=True),
            problems=(404, 415),
            bulk_answer=True,
        )
        for action, doc in (
            ("ack", "End messages as done."),
            ("nack", "Give messages back."),
            ("extend", "Keep messages longer."),
        )
    ),
    *(
        Operation(
            "POST",
            f"{TOPIC}/messages:{action}",
            control_many.control_many,
            f"{action}Many",
            doc,
            {200: "ControlledMany", 202: "Job"},
            Takes(shape, bulk=True),
            problems=(404, 415, 429),
            bulk_answer=True,
        )
        for action, shape, doc in (
            ("cancel", shapes.CANCEL_MANY, "Cancel messages, by id or by filter."),
            ("reschedule", shapes.RESCHEDULE_MANY, "Give messages another time."),
            ("replay", shapes.REPLAY_MANY, "Let dead messages live again."),
        )
    ),
    Operation(
        "GET",
        MESSAGE,
        control.get_message,
        "getMessage",
        "Look at a message, living or lately ended.",
        {200: "Message"},
        query=(shapes.LIFE, shapes.GROUP),
        problems=(404,),
    ),
    Operation(
        "PATCH",
        MESSAGE,
        control.reschedule_message,
        "reschedule",
        "Give a message another time or priority.",
        {200: "Controlled"},
        Takes(shapes.RESCHEDULE),
        problems=(404, 409, 415),
    ),
    Operation(
        "DELETE",
        MESSAGE,
        control.cancel_message,
        "cancel",
        "Cancel a message.",
        {200: "Controlled"},
        query=(shapes.CANCEL_FORCE_QUERY,),
        problems=(404, 409),
    ),
)

GROUP_CALLS: Final = (
    Operation(
        "GET",
        GROUPS,
        groups.list_groups,
        "listGroups",
        "A topic's groups.",
        {200: "Groups"},
        problems=(404,),
    ),
    Operation(
        "GET", GROUP, groups.get_group, "getGroup", "A group.", {200: "Group"}, problems=(404,)
    ),
    Operation(
        "PUT",
        GROUP,
        groups.put_group_,
        "putGroup",
        "Make a group, which sees what is sent from now on.",
        {200: "Group", 201: "Group"},
        Takes(shapes.GROUP_SETTINGS, needed=False),
        problems=(409, 415, 429),
    ),
    Operation(
        "DELETE",
        GROUP,
        groups.delete_group,
        "deleteGroup",
        "Drop a group; what waited for it alone has ended.",
        {200: "Done"},
        problems=(404, 409),
    ),
    Operation(
        "POST",
        f"{TOPIC}/purge",
        groups.purge_topic,
        "purge",
        "End what waits or is ready.",
        {200: "Purged"},
        Takes(shapes.PURGE, needed=False),
        problems=(404, 415),
    ),
    *(
        Operation(
            "POST",
            f"{TOPIC}/{action}",
            groups.pause_topic,
            action,
            doc,
            {200: "Paused"},
            Takes(shapes.PAUSE, needed=False),
            problems=(404, 415),
        )
        for action, doc in (
            ("pause", "Hand nothing out; sends and settles go on."),
            ("resume", "Hand out again."),
        )
    ),
)
