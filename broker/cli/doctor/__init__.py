"""The doctors: `delaylog cluster doctor` and `delaylog doctor broker`.

Each gathers facts, checks them and prints findings. `of_cluster` and `of_broker` gather;
`cluster_checks` and `broker_checks` are pure functions of what they have gathered;
`scrapes` parses metrics, `machine_checks` measures the machine under a broker. `findings` runs
checks and prints what they find.
"""
