"""Hosts of a test: network namespaces, each with a cable to one switch (a bridge in a namespace of its own).

    with Wires(3) as wires:
        subprocess.Popen(wires.command(0) + ["weft", "run", ..])
        wires.cut(1, "silent")       nothing comes through; "down": the host's interface, "unplugged": the port of the switch
        wires.mend(1)
        wires.slow(1, 20)            Mbit/s; 0: as fast as it is
        wires.lose(1, 0.2)           one frame in five, of a host in relays: a process passes its frames on
        subprocess.Popen(wires.at_switch() + ["etcd", ..])      at wires.switch_address(): no cable of a host cuts it off from the others

Raises OSError where this machine lets us make no namespaces."""
import fcntl
import mmap
import os
import random
import select
import signal
import struct
import subprocess

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
MOST_FRAME = 65536
n_wires = 0


def run(*words):
    p = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise OSError("%s: %s" % (" ".join(words), p.stderr.strip()))


def open_tap(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def pass_frames(a, b, share):
    """In a process of its own: frames of either side go to the other one, but for a share of them (a double in shared memory)."""
    draw, parent = random.Random(1), os.getppid()
    while os.getppid() == parent:
        for fd in select.select([a, b], [], [], 1)[0]:
            try:
                while True:
                    frame = os.read(fd, MOST_FRAME)
                    if draw.random() >= struct.unpack_from("d", share)[0]:
                        os.write(b if fd == a else a, frame)
            except OSError:  # no more, or the other end is down
                pass


class Wires:
    def __init__(self, n, relays=()):
        global n_wires
        n_wires += 1
        self.id = "%d-%d" % (os.getpid(), n_wires)
        self.n, self.made, self.relay = n, [], {}
        self.net = "10.%d.%d" % (180 + n_wires % 70, os.getpid() % 250)
        self.switch = "weft-switch-" + self.id
        try:
            self.make(relays)
        except (OSError, FileNotFoundError):
            self.close()
            raise

    def make(self, relays):
        self.add_namespace(self.switch)
        run("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self.switch, "addr", "add", self.switch_address() + "/24", "dev", "bridge")
        run("ip", "-n", self.switch, "link", "set", "lo", "up")
        run("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for k in range(self.n):
            name = self.name(k)
            self.add_namespace(name)
            own, far = "wh%d" % (os.getpid() % 1000000), "ws%d" % (os.getpid() % 1000000)
            if k in relays:
                self.start_relay(k, own, far)
            else:
                run("ip", "link", "add", own, "type", "veth", "peer", "name", far)
            run("ip", "link", "set", own, "netns", name, "name", "cable")
            run("ip", "link", "set", far, "netns", self.switch, "name", "port%d" % k)
            run("ip", "-n", self.switch, "link", "set", "port%d" % k, "master", "bridge")
            run("ip", "-n", self.switch, "link", "set", "port%d" % k, "up")
            run("ip", "-n", name, "addr", "add", self.address(k) + "/24", "dev", "cable")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "cable", "up")

    def add_namespace(self, name):
        run("ip", "netns", "add", name)
        self.made.append(name)

    def start_relay(self, k, own, far):
        a, b, share = open_tap(own), open_tap(far), mmap.mmap(-1, 8)
        pid = os.fork()
        if not pid:
            try:
                pass_frames(a, b, share)
            finally:
                os._exit(0)
        os.close(a), os.close(b)
        self.relay[k] = pid, share

    def name(self, k):
        return "weft-host%d-%s" % (k, self.id)

    def address(self, k):
        return "%s.%d" % (self.net, k + 1)

    def command(self, k):
        return ["ip", "netns", "exec", self.name(k)]

    def at_switch(self):
        """Runs at the switch, which every host reaches by its cable alone, and which has an address of its own."""
        return ["ip", "netns", "exec", self.switch]

    def switch_address(self):
        return self.net + ".100"

    def cut(self, k, how):
        if how == "down":
            run("ip", "-n", self.name(k), "link", "set", "cable", "down")
        elif how == "unplugged":
            run("ip", "-n", self.switch, "link", "set", "port%d" % k, "down")
        else:
            run("ip", "-n", self.switch, "link", "set", "port%d" % k, "nomaster")

    def mend(self, k):
        run("ip", "-n", self.switch, "link", "set", "port%d" % k, "master", "bridge")
        run("ip", "-n", self.switch, "link", "set", "port%d" % k, "up")
        run("ip", "-n", self.name(k), "link", "set", "cable", "up")

    def slow(self, k, mbit):
        for words in (["del"], ["add"])[:2 if mbit else 1]:
            more = ["tbf", "rate", "%dmbit" % mbit, "burst", "32kb", "latency", "100ms"] if words == ["add"] else []
            p = subprocess.run(self.command(k) + ["tc", "qdisc", *words, "dev", "cable", "root", *more], capture_output=True, text=True)
            if more and p.returncode:
                raise OSError("tc: " + p.stderr.strip())

    def lose(self, k, share):
        struct.pack_into("d", self.relay[k][1], 0, share)

    def close(self):
        for pid, _ in self.relay.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
        self.made, self.relay = [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
