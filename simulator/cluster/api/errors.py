"""The refusals of a Kubernetes API server, as one exception that carries the Status object.

Both the HTTPS face and the double of kubectl speak from it, so that they say the same words.
"""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request refused: `code` is the HTTP status, `reason` Kubernetes' machine word for it."""

    def __init__(self, *, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def has_cause(self, reason: str) -> bool:
        return any(cause.get("reason") == reason for cause in self.details.get("causes", ()))

    def status(self) -> dict[str, Any]:
        """The body that the API server answers with."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def not_found(resource: str, name: str, group: str = "") -> ApiError:
    what = qualified(resource, group)
    details = {"name": name, "kind": resource, **({"group": group} if group else {})}
    return ApiError(code=404, reason="NotFound", message=f'{what} "{name}" not found', details=details)


def already_exists(resource: str, name: str, group: str = "") -> ApiError:
    what = qualified(resource, group)
    return ApiError(
        code=409,
        reason="AlreadyExists",
        message=f'{what} "{name}" already exists',
        details={"name": name, "kind": resource},
    )


def conflict(resource: str, name: str, why: str) -> ApiError:
    return ApiError(
        code=409,
        reason="Conflict",
        message=f'Operation cannot be fulfilled on {resource} "{name}": {why}',
        details={"name": name, "kind": resource},
    )


def bad_request(message: str) -> ApiError:
    return ApiError(code=400, reason="BadRequest", message=message)


def invalid(kind: str, name: str, message: str) -> ApiError:
    return ApiError(code=422, reason="Invalid", message=f'{kind} "{name}" is invalid: {message}')


def budget_refusal(budget: str, needed: int, healthy: int) -> ApiError:
    cause = {
        "reason": "DisruptionBudget",
        "message": f"The disruption budget {budget} needs {needed} healthy pods and has {healthy} currently",
    }
    return ApiError(
        code=429,
        reason="TooManyRequests",
        message="Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [cause]},
    )


def two_budgets() -> ApiError:
    return ApiError(
        code=500,
        reason="InternalError",
        message="This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    )


def namespace_terminating(resource: str, name: str, namespace: str) -> ApiError:
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    return ApiError(
        code=403,
        reason="Forbidden",
        message=(
            f'{resource} "{name}" is forbidden: unable to create new content in namespace {namespace} '
            "because it is being terminated"
        ),
        details={"name": name, "kind": resource, "causes": [cause]},
    )
