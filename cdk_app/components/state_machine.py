"""One Step Functions workflow: its definition, one substitution for each placeholder, and its own role."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_app.components.findings import accept, accept_wildcards
from cdk_app.components.function import HandlerFunction
from cdk_app.workflow import Workflow


class FleetStateMachine(Construct):
    """A Standard workflow that logs errors. Tracing is off."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        workflow: Workflow,
        cluster_id: str,
        functions: dict[str, HandlerFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        called = {name: functions[name] for name in workflow.functions}
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "states.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": cdk.Stack.of(self).account}},
            ),
            description=f"node-fleet: permissions of the workflow {workflow.name}",
            inline_policies={"Own": iam.PolicyDocument(statements=[_invoke(called)])},
        )
        reason = "Any version of this function: running executions keep theirs"
        accept_wildcards(role, dict.fromkeys(_any_version(called), reason))
        self.state_machine = sfn.StateMachine(
            self,
            "StateMachine",
            state_machine_name=f"{cluster_id}-{workflow.name}",
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(workflow.text),
            definition_substitutions={f"{name}FunctionArn": f.invoke_arn for name, f in called.items()},
            role=role,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "Logs",
                    log_group_name=f"/aws/vendedlogs/states/{cluster_id}-{workflow.name}",
                    retention=logs.RetentionDays.ONE_MONTH,
                    removal_policy=cdk.RemovalPolicy.DESTROY,
                ),
                level=sfn.LogLevel.ERROR,
                include_execution_data=False,
            ),
            tracing_enabled=False,
        )
        accept_wildcards(role, {"*": "Step Functions sets up its own log delivery; these actions know no resource"})
        accept(
            self.state_machine, "SF1", "A tick every two minutes would log 20,000 quiet steps a day; errors are logged"
        )
        accept(self.state_machine, "SF2", "Tracing is a service setting that an operator switches on when needed")


def _invoke(functions: dict[str, HandlerFunction]) -> iam.PolicyStatement:
    """Any version of exactly these functions: a running execution keeps calling the version it started with."""
    return iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=_any_version(functions))


def _any_version(functions: dict[str, HandlerFunction]) -> list[str]:
    return [f"{function.function.function_arn}:*" for function in functions.values()]
