"""The doctors: `delaylog cluster doctor` and `delaylog doctor broker`.

Each gathers facts and checks them by pure functions, in `cluster` and `broker`. `verb` has the
arguments of `delaylog doctor`. `machine_checks` measures the machine under a broker. `findings`
runs checks and prints what they find.
"""
