"""A small file system of our own: a tmpfs of a few megabytes, in mounts that only we can see.

The program that calls `own_mounts` goes on inside a mount namespace of its own (also as a user
without rights, where the kernel lets users have namespaces), so that nothing is left mounted
however it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_INSIDE = "DELAYLOG_TEST_OWN_MOUNTS"
_TRIES = 20
HELP = (
    "This test mounts a tmpfs. Run it as root, in a container with CAP_SYS_ADMIN "
    "(docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined), or where "
    "`unshare --user --map-root-user --mount true` works for users "
    "(sysctl kernel.unprivileged_userns_clone=1)."
)


def own_mounts() -> None:
    """Start this program again inside a mount namespace of its own; returns inside of it."""
    if os.environ.get(_INSIDE):
        return
    os.environ[_INSIDE] = "1"
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--mount", "--"]
    try:
        works = subprocess.run([*command, "true"], check=False, capture_output=True, timeout=20)
    except FileNotFoundError:
        sys.exit(f"there is no `unshare` here (package util-linux). {HELP}")
    if works.returncode == 0:
        os.execvp(command[0], [*command, sys.executable, *sys.argv])
    if user:
        sys.exit(f"{works.stderr.decode().strip()}. {HELP}")
    # Root of a machine without namespaces: the mount is a plain one then.


def mount(place: Path, size_mib: int) -> None:
    """Mount an empty tmpfs of this size."""
    place.mkdir()
    options = f"size={size_mib}m,mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "delaylog-test", str(place)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)
    if done.returncode:
        sys.exit(f"{done.stderr.strip()}. {HELP}")


def unmount(place: Path) -> None:
    """Take it away."""
    subprocess.run(["umount", "--lazy", str(place)], check=True, timeout=20)


def free_bytes(place: Path) -> int:
    """What a program may still write there."""
    stat = os.statvfs(place)
    return stat.f_bavail * stat.f_frsize


def take_every_byte(file: Path) -> tuple[int, int]:
    """Fill the disk as another program would; returns (bytes taken, bytes left).

    The broker may remove files meanwhile, so the free space is checked and filled again.
    """
    size = 0
    with file.open("ab", buffering=0) as filler:
        for _ in range(_TRIES):
            for chunk in (1 << 20, 4096, 1):
                try:
                    while True:
                        size += filler.write(bytes(chunk))
                except OSError:
                    continue
            left = free_bytes(file.parent)
            if not left:
                break
    return size, left
