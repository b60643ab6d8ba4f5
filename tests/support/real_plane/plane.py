"""Starts and ends a Kubernetes control plane on loopback: etcd, API server, controller manager and scheduler.

Each part is a process of its own with a log beside its data; ports are free ones, and every part ends by its pid.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from simulator.cluster.api.errors import ApiError
from tests.support.real_plane.api import RealApi, path_of
from tests.support.real_servers import free_port

PATIENCE_SECONDS = 180
NOWHERE = "nowhere"
"""The kubeconfig of an API server that does not run."""
MASTERS = "system:masters"
USERS = {
    "node-fleet": MASTERS,
    "person": MASTERS,
    "kubelets": MASTERS,
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}


class ControlPlane:
    """A running control plane. `kubeconfig(user)` is a file for kubectl, `api(user)` a client."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.folder = folder
        self.port, self._etcd, self._peer = free_port(), free_port(), free_port()
        self._binary = binary
        self._tokens = {user: secrets.token_hex(16) for user in USERS}
        self._clients: list[RealApi] = []
        self._parts: dict[str, subprocess.Popen[bytes]] = {}

    def api(self, user: str) -> RealApi:
        self._clients.append(RealApi(self.port, self._tokens[user]))
        return self._clients[-1]

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user.rpartition(':')[2]}.kubeconfig"

    def start(self) -> None:
        """Start every part and wait until the API server answers and the controllers work."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_files()
        store = f"http://127.0.0.1:{self._etcd}"
        self._start_part("etcd", str(self.folder / "etcd"), store, f"http://127.0.0.1:{self._peer}")
        self._start_api_server(store)
        api = self.api("node-fleet")
        self._wait("the API server", lambda: api.answer("GET", "/readyz")[0] == 200)
        # The default of 20 requests a second slows tests that create many objects, and changes no decision.
        fast = ["--kube-api-qps=500", "--kube-api-burst=1000"]
        self._start_part(
            "controller-manager",
            f"--kubeconfig={self.kubeconfig('system:kube-controller-manager')}",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            "--leader-elect=false",
            "--secure-port=0",
            *fast,
        )
        self._start_part(
            "scheduler",
            f"--kubeconfig={self.kubeconfig('system:kube-scheduler')}",
            "--leader-elect=false",
            "--secure-port=0",
            *fast,
        )
        self._wait("the controllers", lambda: api.find("serviceaccounts", "default", "default") is not None)

    def _start_api_server(self, store: str) -> None:
        self._start_part(
            "apiserver",
            f"--etcd-servers={store}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",  # as K3s does
            "--allow-privileged",
            "--service-cluster-ip-range=10.43.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'accounts.key'}",
            f"--service-account-signing-key-file={self.folder / 'accounts.key'}",
        )

    def _write_files(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL)
        (self.folder / "accounts.key").write_bytes(key.private_bytes(*form, serialization.NoEncryption()))
        rows = [f"{self._tokens[user]},{user},{user}{f',{group}' if group else ''}" for user, group in USERS.items()]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        for user, token in {**self._tokens, NOWHERE: "none"}.items():
            self._write_kubeconfig(user, token, free_port() if user == NOWHERE else self.port)

    def _write_kubeconfig(self, user: str, token: str, port: int) -> Path:
        server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "plane", "cluster": server}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "user"}}],
            "current-context": "plane",
        }
        path = self.kubeconfig(user)
        path.write_text(json.dumps(config))
        return path

    def account_kubeconfig(self, namespace: str, account: str) -> Path:
        """The kubeconfig of a service account: what it may do, its roles say."""
        path = path_of("serviceaccounts", namespace, account, "token")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.api("person").request("POST", path, request)["status"]["token"]
        return self._write_kubeconfig(account, token, self.port)

    def _start_part(self, part: str, *arguments: str) -> None:
        with (self.folder / f"{part}.log").open("wb") as log:
            self._parts[part] = subprocess.Popen(
                [str(self._binary), part, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, what: str, condition: object) -> None:
        assert callable(condition)
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends_at:
            for part, process in self._parts.items():
                if process.poll() is not None:
                    tail = (self.folder / f"{part}.log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"{part} ended with status {process.returncode}: {tail}")
            with contextlib.suppress(OSError, ApiError):
                if condition():
                    return
            time.sleep(0.1)
        raise RuntimeError(f"waited {PATIENCE_SECONDS} s in vain for {what}")

    @contextlib.contextmanager
    def paused(self, part: str) -> Iterator[None]:
        """The part hangs during the block: it keeps its connections and answers nothing."""
        self._parts[part].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._parts[part].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End every part at once: nothing that it stores is needed again."""
        for process in self._parts.values():
            process.kill()
        for process in self._parts.values():
            process.wait()
        self._parts.clear()

    def close_clients(self) -> None:
        """Close every connection; no thread may use one any more."""
        for client in self._clients:
            client.close()
