"""camellia-delay-queue's HTTP face: its paths, codes, defaults and state numbers over the engine.

Behaviour follows camellia-delay-queue (github.com/netease-im/camellia); where its code and its
intent differ, the intent is built, and nothing comes out early. docs/COMING-FROM.md has the list.

Read `face` first.
"""
