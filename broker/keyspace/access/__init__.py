"""Which commands, keys and channels a user may use, by the words of ACL SETUSER.

`rules.py` parses the words, `rights.py` decides about a command, `key_access.py` says which keys a
command reads and writes. `users.py` is the interface to the host, which knows the users.
"""
