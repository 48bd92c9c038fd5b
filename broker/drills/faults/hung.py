"""A leader that hangs for long, and clients of the SDK with a long time limit."""

from __future__ import annotations

from delaylog.broker.drills.faults.pauses import stop_leader
from delaylog.broker.drills.rounds import Stage
from delaylog.broker.drills.sdk_clients import SdkClients

HUNG_S = (10.0, 30.0)
SENDS_RESUME_MS = 2_000.0
POLLS_RESUME_MS = 3_000.0


async def hang_leader(stage: Stage) -> None:
    """Stop the leader for 10 to 30 s. The SDK must go to its successor long before that."""
    async with SdkClients(list(stage.trio.urls.values())) as sdk:
        await sdk.both_work()
        await stop_leader(stage, stage.random.uniform(*HUNG_S))
        fault_ms = stage.rounds[-1].strike.fault_ms
        wrong = await sdk.end()
    sends_ms, polls_ms = sdk.timeline.longest_silence_ms(fault_ms, sdk.sends_ended_ms)
    stage.notes.append(
        f"SDK: at most {sends_ms:,.0f} ms without a send, {polls_ms:,.0f} ms without a message"
    )
    if sends_ms > SENDS_RESUME_MS:
        wrong.append(f"no send for {sends_ms:,.0f} ms; the limit is {SENDS_RESUME_MS:,.0f} ms")
    if polls_ms > POLLS_RESUME_MS:
        wrong.append(f"no message for {polls_ms:,.0f} ms; the limit is {POLLS_RESUME_MS:,.0f} ms")
    stage.broken += [f"round {len(stage.rounds)}: SDK: {text}" for text in wrong]
