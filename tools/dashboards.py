"""The four Grafana dashboards as code: `python -m tools.dashboards` writes their JSON.

What the cluster itself knows comes from Prometheus; what only the autoscaler or AWS knows (events, durations, reasons,
money) comes from CloudWatch, because the functions run outside the cluster and nothing scrapes them.
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.dashboard_panels import (
    Formula,
    Json,
    LogQuery,
    Metric,
    Panel,
    Query,
    cluster_variable,
    dashboard,
    text_variable,
)

ROOT = Path(__file__).resolve().parents[1]
# The seeds' baseline: five t3.small on demand, day and night.
BASELINE_USD_PER_HOUR = "0.116"
DECIDE_LOG_GROUP = "/aws/lambda/$cluster-Decide"

WORKERS = 'job="node-exporter"'
POD = "namespace, pod, uid"
NOT_SERVER = 'unless on (node) (kube_node_role{role=~"control-plane|master"})'
NETWORK_DEVICES = 'device!~"lo|veth.*|cni.*|flannel.*"'
UNSCHEDULABLE = (
    f"(max by ({POD}) (kube_pod_status_unschedulable == 1)"
    f' unless on ({POD}) max by ({POD}) (kube_pod_status_reason{{reason="SchedulingGated"}} == 1))'
)
WORKER_CPU = (
    f'100 * (1 - sum by (instance_id) (rate(node_cpu_seconds_total{{{WORKERS},mode="idle"}}[5m]))'
    f" / sum by (instance_id) (rate(node_cpu_seconds_total{{{WORKERS}}}[5m])))"
    f" and on (instance_id) (up{{{WORKERS}}} == 1)"
)
MEMORY_USED = "1 - sum{by}(node_memory_MemAvailable_bytes{{{w}}}) / sum{by}(node_memory_MemTotal_bytes{{{w}}})"


def memory(by: str = "") -> str:
    """Used share of memory in percent, by sums."""
    return "100 * (" + MEMORY_USED.format(by=by, w=WORKERS) + ")"


def megabytes_per_second(counter: str, selector: str) -> str:
    """The rate of a byte counter for each worker."""
    return f"sum by (instance_id) (rate({counter}{{{selector}}}[5m])) / 1024 / 1024"


def latency_milliseconds(quantile: float) -> str:
    """A quantile of the request duration over all replicas."""
    return f"1000 * histogram_quantile({quantile}, sum by (le) (rate(http_request_duration_seconds_bucket[5m])))"


def event_panel(title: str, width: int) -> Panel:
    return Panel(
        title=title,
        description="Workers added (green) and removed (yellow). CloudWatch: only the autoscaler knows.",
        kind="bars",
        width=width,
        targets=(
            Metric(name="ScaleUpEvents", legend="scale-up", period_seconds=60),
            Metric(name="ScaleDownEvents", legend="scale-down", period_seconds=60),
        ),
        colours=(("scale-up", "green"), ("scale-down", "yellow")),
    )


def cluster_overview() -> Json:
    nodes = f"max by (node) (kube_node_info) {NOT_SERVER}"
    ready = 'max by (node) (kube_node_status_condition{condition="Ready",status="true"})'
    return dashboard(
        uid="cluster-overview",
        title="Cluster Overview",
        description="How many workers there are and how busy they are.",
        variables=[cluster_variable()],
        panels=[
            Panel(
                title="Workers",
                description="Nodes known to K3s, without the server.",
                kind="stat",
                width=6,
                targets=(Query(expression=f"count({nodes})", legend="workers"),),
            ),
            Panel(
                title="CPU",
                description="Mean over live workers; iowait and steal count as busy.",
                kind="gauge",
                unit="percent",
                width=6,
                maximum=100,
                marks=(("yellow", 70), ("red", 85)),
                targets=(Query(expression=f"avg({WORKER_CPU})", legend="CPU"),),
            ),
            Panel(
                title="Memory",
                description="Used memory of all workers together.",
                kind="gauge",
                unit="percent",
                width=6,
                maximum=100,
                marks=(("yellow", 75), ("red", 90)),
                targets=(Query(expression=memory(), legend="memory"),),
            ),
            Panel(
                title="Unschedulable pods",
                description="Pods that find no node, gated ones left out.",
                kind="stat",
                width=6,
                marks=(("yellow", 1), ("red", 6)),
                targets=(
                    Query(
                        expression=f"count({UNSCHEDULABLE}) or 0 * count(max by ({POD}) (kube_pod_status_phase))",
                        legend="unschedulable",
                    ),
                ),
            ),
            Panel(
                title="Workers over time",
                description="Known to K3s, and Ready.",
                targets=(
                    Query(expression=f"count({nodes})", legend="known"),
                    Query(expression=f"sum({ready} {NOT_SERVER})", legend="ready"),
                ),
            ),
            event_panel("Scaling events timeline", 12),
            Panel(
                title="CPU by worker",
                description="Busy share of each live worker.",
                unit="percent",
                maximum=100,
                marks=(("yellow", 70), ("red", 85)),
                targets=(Query(expression=WORKER_CPU, legend="{{instance_id}}"),),
            ),
            Panel(
                title="Memory by worker",
                description="Used share, caches not counted.",
                unit="percent",
                maximum=100,
                marks=(("yellow", 75), ("red", 90)),
                targets=(Query(expression=memory(" by (instance_id) "), legend="{{instance_id}}"),),
            ),
            Panel(
                title="Network I/O",
                description="MB/s of each worker, loopback and pod interfaces left out.",
                unit="MBs",
                minimum=None,
                targets=(
                    Query(
                        expression=megabytes_per_second(
                            "node_network_receive_bytes_total", f"{WORKERS},{NETWORK_DEVICES}"
                        ),
                        legend="{{instance_id}} in",
                    ),
                    Query(
                        expression="-"
                        + megabytes_per_second("node_network_transmit_bytes_total", f"{WORKERS},{NETWORK_DEVICES}"),
                        legend="{{instance_id}} out",
                    ),
                ),
            ),
            Panel(
                title="Disk I/O",
                description="MB/s of each worker.",
                unit="MBs",
                minimum=None,
                targets=(
                    Query(
                        expression=megabytes_per_second("node_disk_read_bytes_total", WORKERS),
                        legend="{{instance_id}} read",
                    ),
                    Query(
                        expression="-" + megabytes_per_second("node_disk_written_bytes_total", WORKERS),
                        legend="{{instance_id}} written",
                    ),
                ),
            ),
            Panel(
                title="Pod distribution by node",
                description="Pods on each node: an even colour is an even spread.",
                kind="heatmap",
                width=24,
                targets=(
                    Query(
                        expression=f'count by (node) (max by ({POD}, node) (kube_pod_info{{node!=""}}))',
                        legend="{{node}}",
                    ),
                ),
            ),
        ],
    )


def autoscaler_performance() -> Json:
    duration = "SEARCH('{{AWS/Lambda,FunctionName}} MetricName=\"Duration\" $cluster', '{statistic}', 300)"
    return dashboard(
        uid="autoscaler-perf",
        title="Autoscaler Performance",
        description="How fast and how well the autoscaler works. All of it is CloudWatch.",
        variables=[cluster_variable()],
        panels=[
            Panel(
                title="Lambda duration, median",
                description="Each function of the workflow.",
                unit="ms",
                targets=(Formula(expression=duration.format(statistic="p50"), legend=""),),
            ),
            Panel(
                title="Lambda duration, p95",
                description="Each function of the workflow.",
                unit="ms",
                targets=(Formula(expression=duration.format(statistic="p95"), legend=""),),
            ),
            event_panel("Scale-up and scale-down events", 12),
            Panel(
                title="Node join latency",
                description="From launch to usable. The promise is under 180 s from decision to Ready.",
                unit="s",
                marks=(("red", 180),),
                targets=(
                    Metric(name="NodeJoinSeconds", legend="median", statistic="p50"),
                    Metric(name="NodeJoinSeconds", legend="slowest", statistic="Maximum"),
                ),
            ),
            Panel(
                title="Drain time",
                description="From cordon to drained.",
                unit="s",
                marks=(("red", 300),),
                targets=(Metric(name="DrainSeconds", legend="slowest", statistic="Maximum"),),
            ),
            Panel(
                title="Failures",
                description="Scaling operations that failed.",
                kind="bars",
                targets=(Metric(name="ScalingFailures", legend="failed"),),
                colours=(("failed", "red"),),
            ),
            Panel(
                title="Decision reasons",
                description="How often each rule decided, from the deciding function's log.",
                kind="table",
                width=24,
                targets=(
                    LogQuery(
                        log_group=DECIDE_LOG_GROUP,
                        expression="filter message = 'decision'"
                        " | stats count(*) as decisions by action, rule | sort decisions desc",
                    ),
                ),
            ),
        ],
    )


def application_metrics() -> Json:
    requests = "sum(rate(http_requests_total[2m]))"
    failed = 'sum(rate(http_requests_total{status=~"5.."}[2m]))'
    return dashboard(
        uid="app-metrics",
        title="Application Metrics",
        description="The demo application, or any that exposes the same three metrics.",
        variables=[],
        panels=[
            Panel(
                title="Request rate",
                description="Requests per second over all replicas.",
                unit="reqps",
                targets=(Query(expression=requests, legend="requests"),),
            ),
            Panel(
                title="Latency",
                description="The slowest twentieth and hundredth of requests.",
                unit="ms",
                marks=(("red", 2000),),
                targets=(
                    Query(expression=latency_milliseconds(0.95), legend="p95"),
                    Query(expression=latency_milliseconds(0.99), legend="p99"),
                ),
            ),
            Panel(
                title="Error rate",
                description="Share of answers with a status of 500 or more.",
                unit="percent",
                marks=(("red", 5),),
                targets=(Query(expression=f"100 * ({failed} or 0 * {requests}) / {requests}", legend="errors"),),
            ),
            Panel(
                title="Queue depth",
                description="Orders waiting, all replicas together.",
                marks=(("red", 1000),),
                targets=(Query(expression="sum by (queue) (app_queue_depth)", legend="{{queue}}"),),
            ),
        ],
    )


def cost_tracking() -> Json:
    cost = Metric(name="EstimatedHourlyCost", legend="cost", statistic="Average", identifier="cost", hidden=True)
    spot = f'count(up{{{WORKERS},market="spot"}} == 1)'
    live = f"count(up{{{WORKERS}}} == 1)"
    return dashboard(
        uid="cost-tracking",
        title="Cost Tracking",
        description="What the fleet costs, from the autoscaler's own figure, against machines that never stop.",
        variables=[
            cluster_variable(),
            text_variable("baseline", "Baseline, USD per hour", BASELINE_USD_PER_HOUR),
        ],
        panels=[
            Panel(
                title="Hourly cost",
                description="Workers that run, each at its market's price. CloudWatch.",
                unit="currencyUSD",
                targets=(Metric(name="EstimatedHourlyCost", legend="fleet", statistic="Average"),),
            ),
            Panel(
                title="Daily projection",
                description="The last hour's mean cost, for 24 hours. CloudWatch.",
                kind="stat",
                unit="currencyUSD",
                targets=(cost, Formula(expression="cost * 24", legend="per day", period_seconds=3600)),
            ),
            Panel(
                title="Savings against the baseline",
                description="The baseline less the fleet, per hour. CloudWatch.",
                unit="currencyUSD",
                minimum=None,
                targets=(cost, Formula(expression="$baseline - cost", legend="saved per hour")),
            ),
            Panel(
                title="Savings",
                description="Share of the baseline that is not spent. The promise is 40 to 50 %. CloudWatch.",
                kind="gauge",
                unit="percent",
                minimum=None,
                maximum=100,
                targets=(
                    cost,
                    Formula(expression="100 * ($baseline - cost) / $baseline", legend="saved"),
                ),
            ),
            Panel(
                title="Spot share",
                description="Live workers on Spot, in percent. Prometheus: the market is a label of each target.",
                unit="percent",
                maximum=100,
                targets=(Query(expression=f"100 * ({spot} or 0 * {live}) / {live}", legend="Spot"),),
            ),
            Panel(
                title="Workers by market",
                description="Live workers on Spot and on demand.",
                targets=(Query(expression=f"count by (market) (up{{{WORKERS}}} == 1)", legend="{{market}}"),),
            ),
        ],
    )


DASHBOARDS = (cluster_overview, autoscaler_performance, application_metrics, cost_tracking)


def files() -> dict[str, str]:
    """File name and text of every dashboard."""
    made = [build() for build in DASHBOARDS]
    return {f"{one['uid']}.json": json.dumps(one, indent=2, ensure_ascii=False) + "\n" for one in made}


def main() -> None:
    folder = ROOT / "cluster/monitoring/grafana/dashboards"
    folder.mkdir(exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
