"""Reads secrets, once per container and name. Errors name the secret, never a value."""

from __future__ import annotations

import json
from typing import Any

from node_fleet.domain.model.errors import NodeFleetError


class SecretError(NodeFleetError):
    """A secret cannot be read or has the wrong form. The adapter that needs it raises its own error instead."""


class Secrets:
    """`client` is a Secrets Manager client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: dict[str, str] = {}

    def text(self, name: str, *, fresh: bool = False) -> str:
        """The secret's text. `fresh` reads it again, after a service refused the cached one.

        Raises:
            SecretError: the secret is missing, empty, binary or may not be read.
        """
        if fresh or name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def credentials(self, name: str, *, fresh: bool = False) -> tuple[str, str]:
        """User name and password of a secret with the fields `username` and `password`."""
        try:
            fields = json.loads(self.text(name, fresh=fresh))
            username, password = fields["username"], fields["password"]
        except (ValueError, KeyError, TypeError):
            username = password = None
        if not (isinstance(username, str) and username and isinstance(password, str) and password):
            raise SecretError(f'secret {name} is not of the form {{"username": "...", "password": "..."}}')
        return username, password

    def _read(self, name: str) -> str:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            text = self._client.get_secret_value(SecretId=name).get("SecretString")
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            raise SecretError(f"secret {name} cannot be read: {_REASONS.get(code, code or 'unknown error')}") from None
        except BotoCoreError as error:
            raise SecretError(f"secret {name} cannot be read: {error}") from None
        if not isinstance(text, str) or not text:
            raise SecretError(f"secret {name} holds no text")
        return text


_REASONS = {
    "ResourceNotFoundException": "there is no secret of that name in this region",
    "AccessDeniedException": "this function's role may not read it",
    "DecryptionFailure": "its key may not be used by this function's role",
    "InvalidRequestException": "it is marked for deletion",
}
