"""What an operator watches: nine alarms whose text names the action to take, and one dashboard.

The ten metrics come from the functions' log lines (namespace NodeFleet), without a call or an agent.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_logs as logs
from constructs import Construct

from cdk_app.alarms import ALARMS, AlarmRule
from cdk_app.components.dashboard import NAMESPACE, rows
from cdk_app.config import ClusterConfig
from cdk_app.stacks.autoscaler import AutoscalerStack

OFF_LINES = {
    "AcquireLock": '{ $.message = "lock" && $.status = "off" }',
    "Hibernate": '{ $.message = "hibernate" && $.status != "on" }',
}
"""Function -> the log lines of runs that find the fleet off, or are on the way there."""


class ObservabilityStack(cdk.Stack):
    """`alarms` by name."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: ClusterConfig,
        autoscaler: AutoscalerStack,
        env: cdk.Environment,
    ) -> None:
        super().__init__(scope, construct_id, env=env, description=f"node-fleet {config.cluster_id}: observability")
        # The values are names that the deployment gives: they change only together with this template.
        cdk.CrossStackReferences.of(self).consume(cdk.ReferenceStrength.WEAK)
        self.config = config
        self.autoscaler = autoscaler
        topics = autoscaler.topics
        notify = [actions.SnsAction(topics.messages)]
        page = [*notify, *([actions.SnsAction(topics.critical)] if topics.critical else [])]
        self.alarms = {rule.name: self._alarm(rule, page if rule.severity == "critical" else notify) for rule in ALARMS}
        dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=config.cluster_id)
        for row in rows(config, autoscaler.state_machines, list(self.alarms.values())):
            dashboard.add_widgets(*row)

    def _alarm(self, rule: AlarmRule, receivers: list[actions.SnsAction]) -> cloudwatch.Alarm:
        settings = self.config.settings
        alarm = cloudwatch.Alarm(
            self,
            rule.name,
            alarm_name=f"{self.config.cluster_id}-{rule.name}",
            alarm_description=rule.text,
            metric=self._metric(rule),
            threshold=settings.max_workers if rule.threshold == "maximum" else float(rule.threshold),
            comparison_operator=rule.comparison,
            evaluation_periods=rule.periods,
            datapoints_to_alarm=rule.periods,
            treat_missing_data=rule.missing,
        )
        alarm.add_alarm_action(*receivers)
        alarm.add_ok_action(*receivers)
        return alarm

    def _metric(self, rule: AlarmRule) -> cloudwatch.IMetric:
        period = cdk.Duration.seconds(rule.period_seconds)
        found: dict[str, cloudwatch.IMetric] = {"measured": self._plain_metric(rule, period)}
        if not rule.while_off and self.config.settings.hibernate:
            off = [self._off_lines(function, pattern) for function, pattern in OFF_LINES.items()]
            found["off"] = off[0].with_(period=period)
        if not rule.while_held:
            found["held"] = cloudwatch.Metric(namespace=self._own_namespace, metric_name="LockHeld", statistic="Sum")
        if len(found) == 1:
            return found["measured"]
        return cloudwatch.MathExpression(
            expression=" + ".join(f"FILL({name}, 0)" for name in found),
            label=" or ".join((rule.metric, *list(found)[1:])),
            period=period,
            using_metrics=found,
        )

    def _off_lines(self, function: str, pattern: str) -> cloudwatch.Metric:
        logs.CfnMetricFilter(
            self,
            f"{function}OffLines",
            log_group_name=self.autoscaler.functions[function].log_group_name,
            filter_pattern=pattern,
            metric_transformations=[
                logs.CfnMetricFilter.MetricTransformationProperty(
                    metric_namespace=self._own_namespace, metric_name="SwitchedOff", metric_value="1", default_value=0
                )
            ],
        )
        return cloudwatch.Metric(namespace=self._own_namespace, metric_name="SwitchedOff", statistic="Sum")

    def _plain_metric(self, rule: AlarmRule, period: cdk.Duration) -> cloudwatch.Metric:
        if rule.log_of == "states":
            return self.autoscaler.state_machines["autoscaler"].metric_succeeded(period=period, statistic="Sum")
        if rule.log_of == "queue":
            return self.autoscaler.undelivered.metric(rule.metric, period=period, statistic=rule.statistic)
        if rule.log_of:
            self._count_log_lines(rule)
            return cloudwatch.Metric(
                namespace=self._own_namespace, metric_name=rule.metric, period=period, statistic=rule.statistic
            )
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=rule.metric,
            dimensions_map={"ClusterId": self.config.cluster_id},
            period=period,
            statistic=rule.statistic,
        )

    @property
    def _own_namespace(self) -> str:
        return f"{NAMESPACE}/{self.config.cluster_id}"

    def _count_log_lines(self, rule: AlarmRule) -> None:
        """A metric that exists only while the lines appear; only that of the lock appears in a healthy fleet."""
        logs.CfnMetricFilter(
            self,
            f"{rule.name}Lines",
            log_group_name=self.autoscaler.functions[rule.log_of].log_group_name,
            filter_pattern=rule.pattern,
            metric_transformations=[
                logs.CfnMetricFilter.MetricTransformationProperty(
                    metric_namespace=self._own_namespace, metric_name=rule.metric, metric_value=rule.value
                )
            ],
        )
