"""Starts executions of the autoscaler's state machine. AWS refuses a name that was used before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.domain.model.errors import NodeFleetError
from node_fleet.settings import Settings


class Workflows:
    """The state machine of one cluster."""

    def __init__(self, client: Any, settings: Settings) -> None:
        self._client = client
        self._machine = settings.state_machine_arn

    def start(self, name: str, data: Mapping[str, Any]) -> bool:
        """Start an execution under this name; False when an execution of this name has already ended.

        While that execution runs, AWS answers a second start with the running one: the result is True, and nothing new
        starts. Raises NodeFleetError naming the state machine.
        """
        try:
            self._client.start_execution(stateMachineArn=self._machine, name=name, input=json.dumps(data))
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "ExecutionAlreadyExists":
                return False
            raise NodeFleetError(f"cannot start {self._machine}: {error}") from error
        except BotoCoreError as error:
            raise NodeFleetError(f"cannot start {self._machine}: {error}") from error
        return True
