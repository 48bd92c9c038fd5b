"""`delaylog cluster doctor` and `delaylog doctor tls`: gather facts, check them, print findings.

`of_cluster` and `of_tls` gather; `cluster_checks` and `tls_checks` are pure functions of what they
have gathered; `findings` is what both yield.
"""
