"""The CDK app: stacks for every cluster that cdk.json names. It needs no account, no look-up and no Docker."""

from __future__ import annotations

import gc
import sys

import aws_cdk as cdk
from aws_cdk.aws_s3_assets import Asset

from cdk_app import standalone
from cdk_app.clusters import read_clusters, warnings
from cdk_app.config import ClusterConfig, ConfigurationError
from cdk_app.packages import PackagingError
from cdk_app.recorded_types import CONTEXT_KEY
from cdk_app.stacks.autoscaler import AutoscalerStack
from cdk_app.stacks.cluster import ClusterStack
from cdk_app.stacks.network import NetworkStack
from cdk_app.stacks.observability import ObservabilityStack


def build(app: cdk.App) -> None:
    """Add the stacks of all clusters.

    Raises:
        ConfigurationError: lists every mistake of the context.
    """
    context = app.node.try_get_context
    configs = read_clusters(context("clusters"), context(CONTEXT_KEY))
    for warning in warnings(configs):
        print(warning, file=sys.stderr)
    for config in configs:
        _add_cluster(app, config)


def _add_cluster(app: cdk.App, config: ClusterConfig) -> None:
    env = cdk.Environment(region=config.region)
    facts = None
    if config.mode == "new":
        network = NetworkStack(app, f"{config.cluster_id}-network", config=config, env=env)
        cluster = ClusterStack(app, f"{config.cluster_id}-cluster", config=config, vpc=network.vpc, env=env)
        facts = cluster.facts
    autoscaler = AutoscalerStack(app, f"{config.cluster_id}-autoscaler", config=config, facts=facts, env=env)
    name = f"{config.cluster_id}-observability"
    ObservabilityStack(app, name, config=config, autoscaler=autoscaler, env=env)


def _own_bucket() -> cdk.DefaultStackSynthesizer:
    """Places every zip file in the bucket of the parameter, and needs no bootstrap stack."""
    return cdk.DefaultStackSynthesizer(
        file_assets_bucket_name=f"${{{standalone.BUCKET}}}",
        bucket_prefix=standalone.PREFIX,
        generate_bootstrap_version_rule=False,
    )


def _add_bucket(app: cdk.App) -> None:
    """Declare the bucket in each stack that has a zip file."""
    for stack in (one for one in app.node.children if isinstance(one, cdk.Stack)):
        if any(isinstance(one, Asset) for one in stack.node.find_all()):
            cdk.CfnParameter(
                stack,
                standalone.BUCKET,
                type="String",
                allowed_pattern="[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
                constraint_description="the name of an S3 bucket in the region of the stack",
                description=f"S3 bucket that has the files of the folder assets under {standalone.PREFIX}",
            )


def _apply_security_rules(app: cdk.App) -> None:
    """cdk-nag's AwsSolutions: findings go to validation-report.json beside the templates. Only a test uses them."""
    from cdk_nag import AwsSolutionsChecks

    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def main() -> int:
    """Synthesise the templates; a wrong configuration ends with a list of its mistakes."""
    gc.disable()  # the constructs live until the end, and collecting garbage takes a third of the time
    app = cdk.App(analytics_reporting=False)
    is_standalone = bool(app.node.try_get_context(standalone.CONTEXT_KEY))
    if is_standalone:
        app = cdk.App(analytics_reporting=False, default_stack_synthesizer=_own_bucket())
    try:
        build(app)
        if is_standalone:
            _add_bucket(app)
        if app.node.try_get_context("security_rules"):
            _apply_security_rules(app)
        app.synth()
    except (ConfigurationError, PackagingError) as error:
        print(f"node-fleet: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
