"""Push: messages of a group go to a URL (webhooks), by a consumer inside the broker.

The rules are pure and take time as an argument: `push_addresses` (what may be reached),
`push_signatures` (Standard Webhooks), `requests` (CloudEvents), `outcomes` (what an answer means)
and `breaker` (which attempts may begin). `attempts` has the one HTTP client. Read `breaker` first.
"""
