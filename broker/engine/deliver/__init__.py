"""Deliver: committed rows pass the wheel and become ready; they are leased, settled and expire.

`dispatcher` and `loader` make messages ready at their time. `receives` leases them, `settlements`
ends or returns them, `claims` leases many under one name. `failures` keeps why attempts failed.
Imports: ready, apply, lookup, topics, storage, wheel. Tables (`leases`, `claim_table`, `failures`)
import nothing of apply. Begin with `receives`.
"""
