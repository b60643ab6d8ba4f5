# Part of the commands that read lists of the API server; inserted into each (cdk_app/scripts.py).
import json
import os
import subprocess
import sys


def kubectl(*words):
    """What kubectl prints; ends the script, and names the command, when it fails."""
    limit = "--request-timeout=" + os.environ["REQUEST_TIMEOUT"]
    done = subprocess.run(["kubectl", limit, *words], capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit("cannot read: kubectl " + " ".join(words) + ": " + done.stderr.decode(errors="replace")[:300])
    return done.stdout


def read(path):
    """The items of a list."""
    return json.loads(kubectl("get", "--raw", path))["items"] or []
