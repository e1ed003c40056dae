"""Make the files of this mount namespace read-only, hide some folders, and go on as another program.

Run as a file in a new namespace, by the standard library alone: ``jail.py PLAN COMMAND …``, PLAN being JSON with `work`
(an empty folder that can be written to), `hidden` and `needed` (folders; what is needed shows again in what is hidden).
"""

import ctypes
import json
import os
import sys

RDONLY, REMOUNT, BIND, REC = 1, 32, 4096, 16384
LOCKED = 2 | 4 | 8 | 1024 | 2048
"""nosuid, nodev, noexec, noatime and nodiratime, which a remount has to repeat."""


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Call mount(2)."""
    words = [word and word.encode() for word in (source, target, kind)]
    if ctypes.CDLL(None, use_errno=True).mount(*words, ctypes.c_ulong(flags), options and options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount {target}")


def main(plan: dict, command: list[str]) -> None:
    """See the module."""
    needed = {place: os.open(place, os.O_PATH) for place in plan["needed"]}
    with open("/proc/self/mounts", encoding="utf-8") as file:
        places = {line.split()[1].encode().decode("unicode_escape") for line in file}
    for place in places:
        try:
            mount("", place, None, REMOUNT | BIND | RDONLY | os.statvfs(place).f_flag & LOCKED)
        except OSError:
            if os.access(place, os.W_OK) and not place.startswith(("/proc", "/sys", "/dev")):
                raise  # a file system that stays writable
    hidden = set(plan["hidden"])
    for place in sorted({*hidden, *needed}, key=len):  # a folder before what is in it
        if place in needed and any(place.startswith(f"{folder}/") or place == folder for folder in hidden):
            os.makedirs(place, exist_ok=True)
            mount(f"/proc/self/fd/{needed[place]}", place, None, BIND | REC)
        elif place in hidden and os.path.isdir(place):
            mount("tmpfs", place, "tmpfs", 0, "size=1m,mode=755")
    os.makedirs(plan["work"], exist_ok=True)
    mount("tmpfs", plan["work"], "tmpfs", 0, "size=256m,mode=1777")
    for descriptor in needed.values():
        os.close(descriptor)
    os.chdir(plan["work"])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
