#!/usr/bin/env python3
"""Boots machines, cuts their power, and requires the old or the new config afterwards. Called by `run`.

usage: cut.py WORK KERNEL [--filesystem NAME] [--cuts N] [--seed N] [--row N]
"""

import argparse
import pathlib
import random
import selectors
import shutil
import subprocess
import sys
import time

BOOT_SECONDS = 300
DISK_BYTES = 320 << 20
# Names, types and mount options. Without the order that ext4 keeps on its own, a missing sync is more likely to be seen.
FILESYSTEMS = {
    "ext4": ("ext4", "rw"),
    "ext4-writeback": ("ext4", "data=writeback,noauto_da_alloc"),
    "xfs": ("xfs", "rw"),
}


class Machine:
    """A machine in QEMU. Nothing that it has written to its disks is lost when it ends, except what its kernel has kept
    in memory."""

    def __init__(self, work, kernel, phase, filesystem, disks):
        kind, options = FILESYSTEMS[filesystem]
        command = [
            "qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-smp", "1", "-nographic", "-no-reboot",
            "-nodefaults", "-serial", "stdio", "-kernel", str(kernel), "-initrd", str(work / "initramfs.gz"),
            "-append", f"console=ttyS0 quiet panic=-1 phase={phase} filesystem={kind} options={options}",
            "-drive", f"file={work}/tools.img,format=raw,if=virtio,readonly=on",
        ]
        for disk in disks:
            command += ["-drive", f"file={disk},format=raw,if=virtio"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.lines, self.rest = [], b""

    def read(self, seconds):
        """Waits for output for so many seconds at most. Returns false at the end of the output."""
        if not self.selector.select(max(seconds, 0)):
            return True
        data = self.process.stdout.read1(65536)
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.lines += [line.decode(errors="replace").rstrip("\r") for line in lines]
        return bool(data)

    def until(self, marker):
        """Reads until a line is the marker, and returns the time."""
        deadline = time.monotonic() + BOOT_SECONDS
        while marker not in self.lines:
            if not self.read(deadline - time.monotonic()) or time.monotonic() > deadline:
                self.cut()
                raise RuntimeError(f"no {marker!r}:\n" + "\n".join(self.lines[-40:]))
        return time.monotonic()

    def cut(self):
        self.process.kill()
        while self.read(BOOT_SECONDS):
            pass
        self.process.wait()

    def finish(self):
        self.until("OFF")
        self.process.wait(timeout=BOOT_SECONDS)
        failures = [line for line in self.lines if line.startswith("FAILED")]
        if failures:
            raise RuntimeError("\n".join(failures))


def snapshot(lines, name):
    start = lines.index(f"SNAPSHOT {name}")
    return lines[start + 1 : lines.index("END", start)]


def make_disk(path, filesystem):
    with open(path, "wb") as disk:
        disk.truncate(DISK_BYTES)
    commands = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"]}
    subprocess.run([*commands[FILESYSTEMS[filesystem][0]], str(path)], check=True)


def copy(source, target):
    subprocess.run(["cp", "--reflink=auto", "--sparse=always", str(source), str(target)], check=True)


class Bench:
    """A disk with the old config, and what the disk contains with each config."""

    def __init__(self, work, kernel, filesystem):
        self.work, self.kernel, self.filesystem = work, kernel, filesystem
        self.base = work / f"{filesystem}-base.img"
        other = work / f"{filesystem}-other.img"
        make_disk(self.base, filesystem)
        make_disk(other, filesystem)
        machine = self.boot("prepare", [self.base, other])
        machine.finish()
        self.expected = {name: snapshot(machine.lines, name) for name in ("old", "new")}
        if self.expected["old"] == self.expected["new"] or len(self.expected["new"]) < 100:
            raise RuntimeError("the configs were not applied:\n" + "\n".join(machine.lines[-40:]))
        # Twice, because the first change of a disk can be slower.
        self.duration = max(self.change()[1] for _ in range(2))

    def boot(self, phase, disks):
        return Machine(self.work, self.kernel, phase, self.filesystem, disks)

    def change(self, delay=None):
        """Applies the new config to a copy of the disk, and cuts the power so many seconds after the request. Returns the
        disk and the time until it was done; `None` if the cut came before."""
        disk = self.work / f"{self.filesystem}-cut.img"
        copy(self.base, disk)
        machine = self.boot("cut", [disk])
        asked = machine.until("ASKED")
        if delay is None:
            done = machine.until("DONE")
            machine.cut()
            return disk, done - asked
        while (left := asked + delay - time.monotonic()) > 0:
            machine.read(left)
        machine.cut()
        return disk, ("DONE" in machine.lines) or None

    def examine(self, disk, was_done):
        """Returns which config the disk has after the next boot, and the problems."""
        copied = self.work / f"{self.filesystem}-copy.img"
        copy(disk, copied)
        machine = self.boot("check", [disk, copied])
        machine.finish()
        verdicts = {}
        for line in machine.lines:
            if line.startswith("VERDICT "):
                _, name, said = line.split(" ", 2)
                verdicts[name] = said
        # Applying the config that the machine has changes nothing.
        kept = [name for name, said in verdicts.items() if "nothing to do" in said or " 0 paths changed" in said]
        problems = []
        if len(kept) != 1:
            problems.append(f"neither config was complete: {verdicts}")
        if was_done and kept != ["new"]:
            problems.append("the change was reported as done, and is lost")
        for name, expected in self.expected.items():
            differing = set(snapshot(machine.lines, name)) ^ set(expected)
            if name not in kept:
                # Applied by this boot, on top of the other config, whose directories may stay.
                differing = {line for line in differing if " directory " not in line}
            if differing:
                problems.append(f"after applying {name}: " + "; ".join(sorted(differing)[:10]))
        return (kept or ["?"])[0], problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("kernel", type=pathlib.Path)
    parser.add_argument("--filesystem", choices=FILESYSTEMS, action="append")
    parser.add_argument("--cuts", type=int, default=20, help="for each filesystem")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--row", type=int, help="only this cut")
    arguments = parser.parse_args()
    failed = 0
    for filesystem in arguments.filesystem or FILESYSTEMS:
        bench = Bench(arguments.work, arguments.kernel, filesystem)
        print(f"{filesystem}: an uncut change takes {bench.duration:.2f} s", flush=True)
        outcomes = {}
        for row in [arguments.row] if arguments.row is not None else range(arguments.cuts):
            part = random.Random(f"{arguments.seed}-{filesystem}-{row}").random() * 1.1
            disk, was_done = bench.change(part * bench.duration)
            found, problems = bench.examine(disk, was_done)
            key = "new, reported as done" if was_done and found == "new" else found
            outcomes[key] = outcomes.get(key, 0) + 1
            verdict = "; ".join(problems) or "ok"
            print(f"{filesystem} seed {arguments.seed} row {row}: cut after {part:.3f} of the change: "
                  f"{key}: {verdict}", flush=True)
            if problems:
                failed += 1
                shutil.copy(disk, arguments.work / f"{filesystem}-row-{row}.img")
        print(f"{filesystem}: {sum(outcomes.values())} cuts: {outcomes}", flush=True)
    sys.exit(1 if failed else 0)


main()
