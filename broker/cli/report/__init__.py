"""`delaylog report`: one HTML file about how a broker kept its promise.

Imports: cli, and the file of minutes of `broker/host/metrics`. `analysis` computes, `svg` draws,
`page` writes; all three are pure. Begin with `command`.
"""
