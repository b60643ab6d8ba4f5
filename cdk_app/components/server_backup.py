"""Daily snapshots of the K3s server: its volume holds the datastore, the certificate authority and the tokens.

Data Lifecycle Manager finds the server by its tag, so the snapshots continue after a restore has replaced the volume.
docs/cluster.md has the restore.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_dlm as dlm
from aws_cdk import aws_iam as iam

from cdk_app.components.findings import accept_wildcards
from cdk_app.components.resources import arn
from cdk_app.config import ClusterConfig

BACKUP_TAG = "DailySnapshot"
"""On the server alone, with the cluster id as its value: a policy takes what has any one of its tags."""
KEPT_SNAPSHOTS = 7
SNAPSHOT_TIME_UTC = "19:00"
READING = ["ec2:DescribeInstances", "ec2:DescribeVolumes", "ec2:DescribeSnapshots"]


def back_up_server(stack: cdk.Stack, config: ClusterConfig) -> None:
    """Create the policy and its role."""
    dlm.CfnLifecyclePolicy(
        stack,
        "ServerBackup",
        description=f"node-fleet {config.cluster_id} daily snapshots of the K3s server",
        state="ENABLED",
        execution_role_arn=_backup_role(stack, config).role_arn,
        policy_details=dlm.CfnLifecyclePolicy.PolicyDetailsProperty(
            policy_type="EBS_SNAPSHOT_MANAGEMENT",
            resource_types=["INSTANCE"],
            target_tags=[cdk.CfnTag(key=BACKUP_TAG, value=config.cluster_id)],
            schedules=[
                dlm.CfnLifecyclePolicy.ScheduleProperty(
                    name="daily",
                    create_rule=dlm.CfnLifecyclePolicy.CreateRuleProperty(
                        interval=24, interval_unit="HOURS", times=[SNAPSHOT_TIME_UTC]
                    ),
                    retain_rule=dlm.CfnLifecyclePolicy.RetainRuleProperty(count=KEPT_SNAPSHOTS),
                    tags_to_add=[cdk.CfnTag(key=key, value=value) for key, value in _snapshot_tags(config).items()],
                )
            ],
        ),
    )


def _snapshot_tags(config: ClusterConfig) -> dict[str, str]:
    return {"Name": f"{config.cluster_id}-server", "Project": "node-fleet", "Cluster": config.cluster_id}


def _backup_role(stack: cdk.Stack, config: ClusterConfig) -> iam.Role:
    """Snapshots of this server only; deletes only snapshots of this cluster."""
    service = iam.ServicePrincipal("dlm.amazonaws.com").with_conditions(
        {"StringEquals": {"aws:SourceAccount": stack.account}}
    )
    role = iam.Role(stack, "ServerBackupRole", assumed_by=service)
    snapshots = f"arn:{stack.partition}:ec2:{stack.region}::snapshot/*"
    instances, volumes = arn(stack, "ec2", "instance/*"), arn(stack, "ec2", "volume/*")
    tag = "aws:ResourceTag"
    _allow(role, READING, ["*"])
    _allow(role, ["ec2:CreateSnapshots"], [instances], {f"{tag}/{BACKUP_TAG}": config.cluster_id})
    _allow(role, ["ec2:CreateSnapshots"], [volumes, snapshots])
    _allow(role, ["ec2:CreateTags"], [snapshots])
    ours = {f"{tag}/Project": "node-fleet", f"{tag}/Cluster": config.cluster_id}
    _allow(role, ["ec2:DeleteSnapshot"], [snapshots], ours)
    reasons = dict.fromkeys((volumes, snapshots), "The ids are new, and the call names an instance with that tag")
    reasons |= {"*": "The describe actions support no resource", instances: "The tag of the server is the limit"}
    accept_wildcards(role, reasons)
    return role


def _allow(role: iam.Role, actions: list[str], resources: list[str], equal: dict[str, str] | None = None) -> None:
    conditions = {"StringEquals": equal} if equal else None
    role.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources, conditions=conditions))
