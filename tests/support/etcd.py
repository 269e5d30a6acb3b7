"""A real etcd of three servers for tests of registers.

    cluster = Etcd(folder, ports)       on 127.0.0.1; two ports for each server
    cluster = Etcd(folder, ports, "10.1.2.100", wires.at_switch())      a command that runs what follows it in that network
    cluster.lose_leader()      it is killed, and another one is elected
    cluster.mend()             what was killed is started again
    cluster.close()

has_etcd(): it is installed (Debian: etcd-server, curl)."""
import json
import shutil
import subprocess
import time

N = 3


def has_etcd():
    return bool(shutil.which("etcd") and shutil.which("curl"))


class Etcd:
    def __init__(self, folder, ports, address="127.0.0.1", command=()):
        self.folder, self.ports, self.address, self.command = folder, list(ports), address, list(command)
        self.servers = [self.start(k) for k in range(N)]
        self.await_leader()

    def url(self, k):
        return "http://%s:%d" % (self.address, self.ports[k])

    def start(self, k):
        peers = ",".join("e%d=%s" % (i, self.url(N + i)) for i in range(N))
        return subprocess.Popen([*self.command, "etcd", "--name", "e%d" % k, "--data-dir", "%s/e%d" % (self.folder, k),
                                 "--listen-client-urls", self.url(k), "--advertise-client-urls", self.url(k),
                                 "--listen-peer-urls", self.url(N + k), "--initial-advertise-peer-urls", self.url(N + k),
                                 "--initial-cluster", peers, "--heartbeat-interval", "50", "--election-timeout", "500"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, k, path, body):
        p = subprocess.run([*self.command, "curl", "-s", "-m", "2", "-d", body, "%s/v3/%s" % (self.url(k), path)], capture_output=True, text=True)
        return p.stdout

    def leader(self):
        """Its number: the one whose own member is the leader of the cluster."""
        for k in range(N):
            try:
                s = json.loads(self.ask(k, "maintenance/status", "{}"))
                if s.get("leader") and s["leader"] == s["header"]["member_id"]:
                    return k
            except (ValueError, KeyError):
                pass
        return None

    def await_leader(self, limit_s=60):
        limit = time.monotonic() + limit_s
        while self.leader() is None and time.monotonic() < limit:
            time.sleep(0.1)
        return self.leader()

    def lose_leader(self):
        """False: there is none."""
        k = self.leader()
        if k is None:
            return False
        self.servers[k].kill()
        self.servers[k].wait()
        return True

    def mend(self):
        self.servers = [p if p.poll() is None else self.start(k) for k, p in enumerate(self.servers)]

    def where(self, name):
        return "etcd://%s/%s" % (",".join("%s:%d" % (self.address, p) for p in self.ports[:N]), name)

    def close(self):
        for p in self.servers:
            p.kill()
            p.wait()
