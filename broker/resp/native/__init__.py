"""The native verbs: Redis clients send and receive delayed messages by DL.SEND, DL.RECEIVE …

    DL.SEND topic delay-ms body [ID id] [PRIORITY p] [TTL ms] [KEY k] [TAGS n tag …]
            [RETRIES n] [MERGE keep|replace|reject]                       -> id
    DL.MSEND topic delay-ms body [delay-ms body …]                        -> ids
    DL.RECEIVE topic max [WAIT ms] [LEASE ms] [GROUP g] [CONSUMER name] [TAGS n tag …]
            [META]
                            -> [[id, receipt, body, deliver-at-ms, attempts], …]
    DL.ACK topic receipt [receipt …]                                      -> number
    DL.ACKRECEIVE topic max [… as DL.RECEIVE] RECEIPTS receipt [receipt …]
                            -> [[1 or 0, …], [[id, receipt, …], …]]
    DL.NACK topic [DELAY ms] [REASON text] receipt [receipt …]            -> number
    DL.EXTEND topic lease-ms receipt [receipt …]                          -> number
    DL.GET topic id                                                       -> map or null
    DL.CANCEL topic id [id …]                                             -> number
    DL.RESCHEDULE topic id delay-ms                                       -> due time
    DL.STATS topic                                                        -> map

A delay may be written `@1767225600000`: that time, Unix ms. A topic of another namespace than
`default` is written `namespace/topic`. META adds priority, key, tags and headers to each message.
All sends of one turn of the loop, from all clients, share one batch and one frame.
"""
