"""The refusals of a Kubernetes API server, as one exception that carries the Status object.

Reasons, messages and causes are those of Kubernetes 1.35.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ApiError(Exception):
    """A request refused: `code` is the HTTP status, `reason` the word that Kubernetes gives it."""

    def __init__(self, *, code: int, reason: str, message: str, causes: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = list(causes)

    def has_cause(self, reason: str) -> bool:
        return any(cause["reason"] == reason for cause in self.causes)

    def status(self) -> dict[str, Any]:
        """The body that the API server answers with."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            "details": {"causes": self.causes},
            "code": self.code,
        }


def not_found(resource: str, name: str, group: str = "") -> ApiError:
    what = f"{resource}.{group}" if group else resource
    return ApiError(code=404, reason="NotFound", message=f'{what} "{name}" not found')


def already_exists(resource: str, name: str) -> ApiError:
    return ApiError(code=409, reason="AlreadyExists", message=f'{resource} "{name}" already exists')


def conflict(resource: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return ApiError(code=409, reason="Conflict", message=message)


def bad_request(message: str) -> ApiError:
    return ApiError(code=400, reason="BadRequest", message=message)


def budget_refusal(budget: str, needed: int, healthy: int) -> ApiError:
    counts = f"The disruption budget {budget} needs {needed} healthy pods and has {healthy} currently"
    return ApiError(
        code=429,
        reason="TooManyRequests",
        message="Cannot evict pod as it would violate the pod's disruption budget.",
        causes=[{"reason": "DisruptionBudget", "message": counts}],
    )


def two_budgets() -> ApiError:
    return ApiError(
        code=500,
        reason="",
        message="This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    )


def namespace_terminating(resource: str, name: str, namespace: str) -> ApiError:
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return ApiError(
        code=403,
        reason="Forbidden",
        message=f'{resource} "{name}" is forbidden: {why}',
        causes=[{"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}],
    )
