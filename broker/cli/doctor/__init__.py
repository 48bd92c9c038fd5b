"""The doctors: `delaylog cluster doctor`, `delaylog doctor broker` and `delaylog doctor tls`.

Each gathers facts, checks them and prints findings. `of_cluster`, `of_broker` and `of_tls` gather;
`cluster_checks`, `broker_checks` and `tls_checks` are pure functions of what they have gathered;
`machine_checks` measures the machine under a broker. `findings` runs checks and prints what they
find.
"""
