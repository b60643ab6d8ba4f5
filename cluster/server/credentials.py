"""Converts the secret {"username", "password"} into two plain files, and into the web file of Prometheus (bcrypt).

It runs on the server with the standard library; libcrypt of the system provides bcrypt. It must not print the password,
and it writes files that only root can read.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

BCRYPT_COST = 10


class CredentialsError(Exception):
    """The secret or the libcrypt of this machine is not usable."""


def read_secret(text: str) -> tuple[str, str]:
    """Username and password of the secret. The username becomes a key in YAML, so its characters are restricted."""
    try:
        secret = json.loads(text)
    except ValueError as error:
        raise CredentialsError(f"the secret is not JSON: {error}") from None
    if not isinstance(secret, dict):
        raise CredentialsError("the secret is not a JSON object with username and password")
    username, password = secret.get("username"), secret.get("password")
    if not isinstance(username, str) or not username.replace("-", "").isalnum():
        raise CredentialsError("username must be letters, digits and hyphens")
    if not isinstance(password, str) or not password:
        raise CredentialsError("password must not be empty")
    if len(password.encode()) > 72:
        raise CredentialsError("password must not exceed 72 bytes; bcrypt ignores the rest")
    return username, password


def system_libcrypt() -> ctypes.CDLL:
    """The C library's password hashing; its file name differs between distributions."""
    for name in ("libcrypt.so.2", "libcrypt.so.1"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CredentialsError("no libcrypt on this machine; install libxcrypt")


def bcrypt_hash(password: str) -> str:
    """The $2b$ hash that Prometheus expects, with a fresh salt."""
    library = system_libcrypt()
    library.crypt_gensalt.restype = ctypes.c_char_p
    library.crypt.restype = ctypes.c_char_p
    salt = library.crypt_gensalt(b"$2b$", ctypes.c_ulong(BCRYPT_COST), os.urandom(16), 16)
    hashed = library.crypt(password.encode(), salt) if salt else None
    if not hashed or not hashed.startswith(b"$2b$"):
        raise CredentialsError("this machine's libcrypt cannot make bcrypt hashes")
    return str(hashed.decode())


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read from the moment of its creation."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def main(arguments: list[str]) -> int:
    """credentials.py SECRET_FILE FOLDER [WEB_FILE]: the web file is the name of a third file in the folder."""
    secret_file, folder, web_files = Path(arguments[0]), Path(arguments[1]), arguments[2:]
    try:
        username, password = read_secret(secret_file.read_text())
        files = {"username": username, "password": password}
        for name in web_files:
            files[name] = f'basic_auth_users:\n  {username}: "{bcrypt_hash(password)}"\n'
    except CredentialsError as error:
        print(error, file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_private(folder / name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
