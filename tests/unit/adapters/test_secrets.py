"""Secrets: read once, read again when asked, and errors that name the secret and never its value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from node_fleet.adapters.secrets import SecretError, Secrets

GOOD = '{"username": "prometheus", "password": "s3cret"}'


@dataclass
class FakeClient:
    """Secrets Manager with one secret; `error` is raised instead when set."""

    value: Any = GOOD
    error: Exception | None = None
    calls: list[str] = field(default_factory=list)

    def get_secret_value(self, SecretId: str) -> dict[str, Any]:
        self.calls.append(SecretId)
        if self.error:
            raise self.error
        return {"SecretString": self.value} if self.value is not None else {"SecretBinary": b"x"}


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, "GetSecretValue")


def test_a_secret_is_read_once_and_afresh_when_asked() -> None:
    client = FakeClient()
    secrets = Secrets(client)
    assert secrets.credentials("a/b") == ("prometheus", "s3cret")
    assert secrets.text("a/b") == GOOD
    assert client.calls == ["a/b"]
    client.value = '{"username": "prometheus", "password": "new"}'
    assert secrets.credentials("a/b")[1] == "s3cret"
    assert secrets.credentials("a/b", fresh=True)[1] == "new"
    assert secrets.credentials("a/b")[1] == "new"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (refusal("ResourceNotFoundException"), "there is no secret of that name in this region"),
        (refusal("AccessDeniedException"), "this function's role may not read it"),
        (refusal("InternalServiceError"), "InternalServiceError"),
        (EndpointConnectionError(endpoint_url="https://secretsmanager"), "Could not connect to the endpoint URL"),
    ],
)
def test_a_refusal_names_the_secret_and_the_reason(error: Exception, says: str) -> None:
    with pytest.raises(SecretError) as caught:
        Secrets(FakeClient(error=error)).text("a/b")
    assert str(caught.value).startswith(f"secret a/b cannot be read: {says}")


@pytest.mark.parametrize("value", [None, ""])
def test_a_secret_without_text_is_refused(value: Any) -> None:
    with pytest.raises(SecretError, match=r"^secret a/b holds no text$"):
        Secrets(FakeClient(value=value)).text("a/b")


@pytest.mark.parametrize(
    "value",
    [
        "s3cret",
        "[]",
        '"s3cret"',
        '{"username": "prometheus"}',
        '{"username": "prometheus", "password": 7}',
        '{"username": "", "password": "s3cret"}',
    ],
)
def test_a_secret_of_the_wrong_form_says_what_is_right_and_not_what_it_holds(value: str) -> None:
    with pytest.raises(SecretError) as caught:
        Secrets(FakeClient(value=value)).credentials("a/b")
    assert str(caught.value) == 'secret a/b is not of the form {"username": "...", "password": "..."}'
