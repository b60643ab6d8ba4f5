# Part of the commands that read lists of the API server; inserted into each (cdk_app/scripts.py).
import json
import os
import subprocess
import sys


def read(path):
    """The items of a list; ends the script, and names the list, when the API server gives none."""
    limit = "--request-timeout=" + os.environ["REQUEST_TIMEOUT"]
    done = subprocess.run(["kubectl", limit, "get", "--raw", path], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit("cannot read: kubectl get --raw " + path)
    return json.loads(done.stdout)["items"] or []
