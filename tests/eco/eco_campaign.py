"""A minute of tools/campaign.py: drawn faults of one host, or of two and three where this machine lets us make network namespaces.

    WEFT_CAMPAIGN_BLOCK    host or hosts (host)
    WEFT_CAMPAIGN_SECONDS  how long to go on (60, sanitized 6)
    WEFT_CAMPAIGN_SEED     what they are drawn from (drawn; after a run that failed its seed, until a run with it passes)"""
import os
import random
import subprocess
import sys

from eco import ROOT, SANITIZED, WEFT, check, end, skip

BLOCKS = dict(host="processes,phases,resize,hang,numeric,disk,slow,agent", hosts="hosts")
BLOCK = os.environ.get("WEFT_CAMPAIGN_BLOCK", "host")
SECONDS = os.environ.get("WEFT_CAMPAIGN_SECONDS", "6" if SANITIZED else "60")
KEPT = os.path.join(os.path.dirname(WEFT), "campaign-%s.seed" % BLOCK)


def find_seed():
    if os.path.exists(KEPT):
        with open(KEPT) as f:
            return f.read().strip()
    return str(random.SystemRandom().randrange(1 << 30))


def main():
    seed = os.environ.get("WEFT_CAMPAIGN_SEED") or find_seed()
    words = [os.path.join(ROOT, "tools", "campaign.py"), WEFT, "--block", BLOCKS[BLOCK], "--seed", seed, "--seconds", SECONDS, "--narrow"]
    print("again: WEFT_CAMPAIGN_BLOCK=%s WEFT_CAMPAIGN_SEED=%s tests/eco/run.sh campaign; a job alone: %s --only JOB" % (
        BLOCK, seed, " ".join(words)), flush=True)
    with open(KEPT, "w") as f:
        f.write(seed + "\n")
    p = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if "left out: no network namespaces" in p.stdout:
        os.remove(KEPT)
        skip("this machine makes no network namespaces")
    print(p.stdout if p.returncode else "\n".join(p.stdout.splitlines()[-2:]))
    if check(p.returncode == 0, "the campaign ended with %r" % p.returncode):
        os.remove(KEPT)
    end()


if __name__ == "__main__":
    main()
