"""The engine: the synchronous, deterministic core of the broker. One data folder, one thread.

It decides what a call does, appends one frame to the log and applies that frame to the state in
memory. It imports `broker.rules`, `storage` and `wheel`. Time, files and randomness are arguments,
so it never reads a clock, sleeps, or opens a socket.

Start with `engine.py` (what a host calls), then `state.py` (what frames change), then the module
of the step that you need:

A message's way, from its request to its ack. Each step names its file.

     1. request  a batch of columns over the client's bytes       calls/turn/sends.py
     2. decide   limits, quota, ids merged, one SendDecision      send/sending.py
     3. append   a SEND frame in the log's memory                 state.py
     4. apply    rows with refs in their hours' tails, counted    apply/send_frames.py
     5. wait     an Exposure, until the frame is committed        apply/send_frames.py
     6. commit   the host synced or replicated it; answered       host/log_commits.py, engine.py
     7. show     a second's slot of the wheel, if due soon        deliver/dispatcher.py
     8. flush    rows in the files of their hour (splitter)       storage/hours/hour_flusher.py
     9. load     10 s before its second: chain read from disk     deliver/loader.py
    10. release  at its millisecond: ref out of the wheel         deliver/dispatcher.py
    11. ready    the group's queue; parked if its key is locked   ready/
    12. receive  refs popped, states checked again, LEASE frame   deliver/receiving.py
    13. leased   an open lease with a deadline                    deliver/leases.py
    14. ack      SETTLE frame: ended; key unlocked, counts fall   deliver/settling.py
    15. retry    nack or expiry instead: a MOVE to a new row      apply/move_frames.py
    16. removed  the hour's files, once no row in it lives        upkeep/checkpoints.py

Every frame kind has one function in `apply/`. The leader calls it right after its append; a start
and a follower call it when they read the frame (`apply/frames.py`).

`Work` (storage/work.py) is background work: a generator that the host advances one step at a time
on the thread of the engine. What it yields tells the host what to do before the next step:

    None        give way to others, then go on
    a float     wait so many seconds, or until more of the log is committed
    a callable  a job: call it on any thread (it may block on files), then go on

Between two steps anything may have changed, so work checks again what it relies on. A job that
raises gets its exception thrown into the generator. `Engine.run_inline` runs work to its end.
"""
