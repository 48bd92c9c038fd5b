"""`delaylog dump`: the files of a data folder as JSON lines; read `files` first.

It imports the layouts of `storage` and the broker's readers of files, and nothing of the client.
"""
