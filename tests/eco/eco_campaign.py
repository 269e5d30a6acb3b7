"""A minute of tools/campaign.py: drawn faults of one host, or of two and three where this machine lets us make network namespaces.

    WEFT_CAMPAIGN_BLOCK    host or hosts (host)
    WEFT_CAMPAIGN_SECONDS  how long to go on (60, sanitized 6)
    WEFT_CAMPAIGN_SEED     what they are drawn from (one seed for make test; tools/campaign.py draws its own)"""
import os
import subprocess
import sys

from eco import ROOT, SANITIZED, WEFT, check, end, skip

BLOCKS = dict(host="processes,phases,resize,hang,numeric,flip,disk,slow,agent", hosts="hosts")
BLOCK = os.environ.get("WEFT_CAMPAIGN_BLOCK", "host")
SECONDS = os.environ.get("WEFT_CAMPAIGN_SECONDS", "6" if SANITIZED else "60")
SEED = os.environ.get("WEFT_CAMPAIGN_SEED", "20261119")


def main():
    words = [os.path.join(ROOT, "tools", "campaign.py"), WEFT, "--block", BLOCKS[BLOCK], "--seed", SEED, "--seconds", SECONDS, "--narrow"]
    print("one of its jobs: %s --only JOB" % " ".join(words), flush=True)
    p = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if "left out: no network namespaces" in p.stdout:
        skip("this machine makes no network namespaces")
    print(p.stdout if p.returncode else "\n".join(p.stdout.splitlines()[-2:]))
    check(p.returncode == 0, "the campaign ended with %r" % p.returncode)
    end()


if __name__ == "__main__":
    main()
