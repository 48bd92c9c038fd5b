"""The delay log itself for Redis clients: DL.SEND, DL.RECEIVE and their kin.

    DL.SEND topic delay-ms body [ID id] [PRIORITY p] [TTL ms] [KEY k] [TAGS n tag …]
            [RETRIES n] [MERGE keep|replace|reject]                       -> id
    DL.MSEND topic delay-ms body [delay-ms body …]                        -> ids
    DL.RECEIVE topic max [WAIT ms] [LEASE ms] [GROUP g] [TAGS n tag …] [META]
                            -> [[id, receipt, body, deliver-at-ms, attempts], …]
    DL.ACK topic receipt [receipt …]                                      -> how many
    DL.ACKRECEIVE topic max [… as DL.RECEIVE] RECEIPTS receipt [receipt …]
                            -> [[1 or 0, …], [[id, receipt, …], …]]
    DL.NACK topic [DELAY ms] receipt [receipt …]                          -> how many
    DL.EXTEND topic lease-ms receipt [receipt …]                          -> how many
    DL.GET topic id                                                       -> map or null
    DL.CANCEL topic id [id …]                                             -> how many
    DL.RESCHEDULE topic id delay-ms                                       -> due time
    DL.STATS topic                                                        -> map

A delay may be written `@1767225600000`: that time, Unix ms. A topic of another namespace than
`default` is written `namespace/topic`. META adds priority, key, tags and headers to each message.
Sends of one turn of the loop, whoever they come from, are one batch and one frame.
"""
