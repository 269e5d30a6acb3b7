"""Some seconds of tools/campaign.py: drawn faults of one host and, where this machine lets us make network namespaces, of two
and three.

    WEFT_CAMPAIGN_SECONDS  how long to go on with each (25, sanitized 6)
    WEFT_CAMPAIGN_SEED     what they are drawn from (one whose first jobs are short; tools/campaign.py draws its own)"""
import os
import subprocess
import sys

from eco import ROOT, SANITIZED, WEFT, check, end

SECONDS = os.environ.get("WEFT_CAMPAIGN_SECONDS", "6" if SANITIZED else "25")
SEED = os.environ.get("WEFT_CAMPAIGN_SEED", "322")
BLOCKS = ["processes,phases,resize,hang,numeric,disk,slow,agent", "hosts"]


def main():
    for block in BLOCKS:
        p = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "campaign.py"), WEFT, "--block", block, "--seed", SEED, "--seconds",
                            SECONDS, "--narrow"], capture_output=True, text=True)
        left_out = "left out: no network namespaces" in p.stdout
        check(p.returncode == 0 or left_out, "--block %s --seed %s: %r\n%s%s" % (block, SEED, p.returncode, p.stdout[-6000:], p.stderr[-2000:]))
        print(block + ": " + " ".join(p.stdout.splitlines()[-2:]))
    end()


if __name__ == "__main__":
    main()
