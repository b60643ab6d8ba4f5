"""The five Grafana dashboards as code: `python -m tools.dashboards` writes their JSON.

Values of the cluster come from Prometheus. Values of the autoscaler and of AWS (events, durations, reasons, cost) come
from CloudWatch, because the functions run outside the cluster and Prometheus does not scrape them. The dashboard
node-fleet shows what the state item has of them, without CloudWatch.
"""

from __future__ import annotations

import json
from pathlib import Path

from node_fleet.domain.cost.fleet_cost import fixed_fleet
from node_fleet.settings import Settings
from tools.dashboard_panels import (
    Json,
    Panel,
    annotation,
    cluster_variable,
    dashboard,
    formula,
    log_query,
    metric,
    query,
    text_variable,
)

ROOT = Path(__file__).resolve().parents[1]
DEFAULTS = Settings()
BASELINE = fixed_fleet(
    DEFAULTS.tariff(), DEFAULTS.instance_types[0], 0.0, workers=DEFAULTS.baseline_workers, hours=1
).usd
"""USD an hour of the fixed fleet by the default settings, without CPU credits: the page does not know its CPU."""
DECIDE_LOG_GROUP = "/aws/lambda/$cluster-Decide"
LOCK_LOG_GROUP = "/aws/lambda/$cluster-AcquireLock"
OWN = 'job="node-fleet"'
"""The metrics of node-fleet itself."""
LOCK_STATUSES = ("acquired", "held", "paused", "off", "stale")
COUNT = "short"
"""The unit of numbers of things: 1500 reads as 1.5 K."""

CPU_MARKS, MEMORY_MARKS = (
    (("yellow", "cpu_up_percent"), ("red", "cpu_urgent_percent")),
    (("yellow", "memory_up_percent"),),
)
"""Names of settings, whose values the deployment fills in."""
WORKERS = 'job="node-exporter"'
POD = "namespace, pod, uid"
NOT_SERVER = 'unless on (node) (kube_node_role{job="kube-state-metrics",role=~"control-plane|master"})'
NETWORK_DEVICES = 'device!~"lo|veth.*|cni.*|flannel.*"'
GATED = 'kube_pod_status_reason{job="kube-state-metrics",reason="SchedulingGated"}'
UNSCHEDULABLE = (
    f'(max by ({POD}) (kube_pod_status_unschedulable{{job="kube-state-metrics"}} == 1)'
    f" unless on ({POD}) max by ({POD}) ({GATED} == 1))"
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


def bytes_panel(title: str, description: str, selector: str, **counters: str) -> Panel:
    """Two byte counters of each worker as rates, the second one below the axis."""
    (first, first_counter), (second, second_counter) = counters.items()
    rate = "sum by (instance_id) (rate({}{{{}}}[5m]))"
    return Panel(
        title,
        description,
        unit="binBps",
        minimum=None,
        targets=(
            query(rate.format(first_counter, selector), f"{{{{instance_id}}}} {first}"),
            query("-" + rate.format(second_counter, selector), f"{{{{instance_id}}}} {second}"),
        ),
    )


def latency_milliseconds(quantile: float) -> str:
    """A quantile of the request duration over all replicas."""
    return f"1000 * histogram_quantile({quantile}, sum by (le) (rate(http_request_duration_seconds_bucket[5m])))"


def event_panel(title: str) -> Panel:
    return Panel(
        title,
        "Runs that added (green) or removed (yellow) workers, from CloudWatch.",
        kind="bars",
        unit=COUNT,
        targets=(
            metric("ScaleUpEvents", "scale-up", period_seconds=60),
            metric("ScaleDownEvents", "scale-down", period_seconds=60),
        ),
        colours=(("scale-up", "green"), ("scale-down", "yellow")),
    )


PODS_KNOWN = f'count(max by ({POD}) (kube_pod_status_phase{{job="kube-state-metrics"}}))'
NODES = f'max by (node) (kube_node_info{{job="kube-state-metrics"}}) {NOT_SERVER}'
EARLIER = 'max by (node) (kube_node_info{job="kube-state-metrics"} offset 1m)'
AT_PRESENT = 'max by (node) (kube_node_info{job="kube-state-metrics"})'
SCALE_EVENTS = (
    annotation("Worker joined", f"({NODES}) unless {EARLIER} and on () (count({EARLIER}) > 0)", "{{node}}", "green"),
    annotation(
        "Worker removed", f"({EARLIER}) unless {AT_PRESENT} and on () (count({AT_PRESENT}) > 0)", "{{node}}", "yellow"
    ),
)
"""From the nodes of K3s. Without data a minute ago, or now, there is no event: the exporter was down."""


def cluster_overview() -> Json:
    return dashboard(
        uid="cluster-overview",
        title="Cluster Overview",
        description="How many workers there are and how busy they are.",
        variables=[cluster_variable()],
        annotations=SCALE_EVENTS,
        panels=[*_fleet_at_present(), *_fleet_over_time()],
    )


def _fleet_at_present() -> list[Panel]:
    return [
        Panel(
            "Workers",
            "Nodes known to K3s, without the server.",
            kind="stat",
            unit=COUNT,
            width=6,
            targets=(query(f"count({NODES})", "workers"),),
        ),
        Panel(
            "CPU",
            "Mean over live workers; iowait and steal count as busy. Yellow over cpu_up_percent, red over "
            "cpu_urgent_percent.",
            targets=(query(f"avg({WORKER_CPU})", "CPU"),),
            marks=CPU_MARKS,
            unit="percent",
            maximum=100,
            kind="gauge",
            width=6,
        ),
        Panel(
            "Memory",
            "Used memory of all workers together. Yellow over memory_up_percent.",
            targets=(query(memory(), "memory"),),
            marks=MEMORY_MARKS,
            unit="percent",
            maximum=100,
            kind="gauge",
            width=6,
        ),
        Panel(
            "Unschedulable pods",
            "Pods that fit on no node. Pods with scheduling gates are left out.",
            kind="stat",
            unit=COUNT,
            width=6,
            marks=(("yellow", 1), ("red", 6)),
            targets=(query(f"count({UNSCHEDULABLE}) or 0 * {PODS_KNOWN}", "unschedulable"),),
        ),
    ]


def _fleet_over_time() -> list[Panel]:
    ready = 'max by (node) (kube_node_status_condition{job="kube-state-metrics",condition="Ready",status="true"})'
    return [
        Panel(
            "Workers over time",
            "Nodes known to K3s, and nodes that are Ready, between min_workers and max_workers. A schedule, a "
            "prediction or a replacement can raise the minimum for a time.",
            unit=COUNT,
            targets=(
                query(f"count({NODES})", "known"),
                query(f"sum({ready} {NOT_SERVER})", "ready"),
                query(f"node_fleet_workers_min{{{OWN}}}", "minimum"),
                query(f"node_fleet_workers_max{{{OWN}}}", "maximum"),
            ),
            colours=(("minimum", "blue"), ("maximum", "red")),
            limits=("minimum", "maximum"),
        ),
        event_panel("Scaling events timeline"),
        Panel(
            "CPU by worker",
            "Busy share of each live worker.",
            targets=(query(WORKER_CPU, "{{instance_id}}"),),
            marks=CPU_MARKS,
            unit="percent",
            maximum=100,
        ),
        Panel(
            "Memory by worker",
            "Used share of each worker, without caches.",
            targets=(query(memory(" by (instance_id) "), "{{instance_id}}"),),
            marks=MEMORY_MARKS,
            unit="percent",
            maximum=100,
        ),
        bytes_panel(
            "Network I/O",
            "Bytes per second of each worker, without loopback and pod interfaces.",
            f"{WORKERS},{NETWORK_DEVICES}",
            **{"in": "node_network_receive_bytes_total", "out": "node_network_transmit_bytes_total"},
        ),
        bytes_panel(
            "Disk I/O",
            "Bytes per second of each worker.",
            WORKERS,
            read="node_disk_read_bytes_total",
            written="node_disk_written_bytes_total",
        ),
        Panel(
            "Pod distribution by node",
            "Pods on each node. An even colour shows an even distribution.",
            kind="heatmap",
            unit=COUNT,
            width=24,
            targets=(
                query(
                    f'count by (node) (max by ({POD}, node) (kube_pod_info{{job="kube-state-metrics",node!=""}}))',
                    "{{node}}",
                ),
            ),
        ),
    ]


def autoscaler_performance() -> Json:
    duration = "SEARCH('{{AWS/Lambda,FunctionName}} MetricName=\"Duration\" $cluster', '{statistic}', 300)"
    return dashboard(
        uid="autoscaler-perf",
        title="Autoscaler Performance",
        description="Speed and results of the autoscaler, from CloudWatch.",
        variables=[cluster_variable()],
        panels=[
            Panel(
                "Lambda duration, median",
                "Each function of the workflow.",
                unit="ms",
                targets=(formula(duration.format(statistic="p50"), ""),),
            ),
            Panel(
                "Lambda duration, p95",
                "Each function of the workflow.",
                unit="ms",
                targets=(formula(duration.format(statistic="p95"), ""),),
            ),
            event_panel("Scale-up and scale-down events"),
            Panel(
                "Node join latency",
                "From launch to ready. The target is under 180 s from decision to Ready.",
                unit="s",
                marks=(("red", 180),),
                targets=(
                    metric("NodeJoinSeconds", "median", statistic="p50"),
                    metric("NodeJoinSeconds", "slowest", statistic="Maximum"),
                ),
            ),
            Panel(
                "Drain time",
                "From cordon to drained.",
                unit="s",
                marks=(("red", 300),),
                targets=(metric("DrainSeconds", "slowest", statistic="Maximum"),),
            ),
            Panel(
                "Failures",
                "Runs that failed.",
                kind="bars",
                unit=COUNT,
                targets=(metric("ScalingFailures", "failed"),),
                colours=(("failed", "red"),),
            ),
            Panel(
                "Decision reasons",
                "How often each rule decided, from the log of the function Decide.",
                kind="table",
                unit=COUNT,
                width=24,
                targets=(
                    log_query(
                        "filter message = 'decision'"
                        " | stats count(*) as decisions by action, rule | sort decisions desc",
                        DECIDE_LOG_GROUP,
                    ),
                ),
            ),
            *_lock_and_pause(),
        ],
    )


def _lock_and_pause() -> list[Panel]:
    """Why runs ended before they read anything, from the log of the function AcquireLock."""
    every_run = "filter message = 'lock'"
    counts = ", ".join(f"sum(strcontains(status, '{one}')) as {one}" for one in LOCK_STATUSES)
    return [
        Panel(
            "Lock and pause",
            "Runs by what they found: acquired (the lock was free), held (another run has it), paused (an operator "
            "paused the fleet), off (the fleet is switched off), stale (the tick was delivered twice).",
            kind="bars",
            unit=COUNT,
            targets=(log_query(f"{every_run} | stats {counts} by bin(5m)", LOCK_LOG_GROUP),),
            colours=(("acquired", "green"), ("held", "red"), ("paused", "yellow"), ("off", "blue"), ("stale", "text")),
        ),
        Panel(
            "Held lock and pauses",
            "The latest runs that another run or an operator kept from scaling, with the reason.",
            kind="table",
            unit=COUNT,
            targets=(
                log_query(
                    f"fields @timestamp, status, detail | {every_run} and status in ['held', 'paused']"
                    " | sort @timestamp desc | limit 20",
                    LOCK_LOG_GROUP,
                ),
            ),
        ),
    ]


def application_metrics() -> Json:
    requests = "sum(rate(http_requests_total[2m]))"
    failed = 'sum(rate(http_requests_total{status=~"5.."}[2m]))'
    return dashboard(
        uid="app-metrics",
        title="Application Metrics",
        description="The demo application, or any application that exposes the same three metrics.",
        variables=[],
        panels=[
            Panel(
                "Request rate",
                "Requests per second over all replicas.",
                unit="reqps",
                targets=(query(requests, "requests"),),
            ),
            Panel(
                "Latency",
                "95th and 99th percentile of the request duration.",
                unit="ms",
                marks=(("red", 2000),),
                targets=(query(latency_milliseconds(0.95), "p95"), query(latency_milliseconds(0.99), "p99")),
            ),
            Panel(
                "Error rate",
                "Share of responses with a status of 500 or more.",
                unit="percent",
                marks=(("red", 5),),
                targets=(query(f"100 * ({failed} or 0 * {requests}) / {requests}", "errors"),),
            ),
            Panel(
                "Queue depth",
                "Waiting orders of all replicas.",
                unit=COUNT,
                marks=(("red", 1000),),
                targets=(query("sum by (queue) (app_queue_depth)", "{{queue}}"),),
            ),
        ],
    )


def cost_tracking() -> Json:
    cost = metric("EstimatedHourlyCost", "cost", statistic="Average", identifier="cost", hidden=True)
    spot = f'count(up{{{WORKERS},market="spot"}} == 1)'
    live = f"count(up{{{WORKERS}}} == 1)"
    return dashboard(
        uid="cost-tracking",
        title="Cost Tracking",
        description="Cost of the fleet as the autoscaler computes it, compared with a fixed fleet.",
        variables=[cluster_variable(), text_variable("baseline", "Baseline, USD per hour", f"{BASELINE:.3f}")],
        panels=[
            Panel(
                "Hourly cost",
                "Running workers with volumes, public addresses and CPU credits, from CloudWatch.",
                unit="currencyUSD",
                targets=(metric("EstimatedHourlyCost", "fleet", statistic="Average"),),
            ),
            Panel(
                "Daily projection",
                "Mean cost of the last hour for 24 hours, from CloudWatch.",
                kind="stat",
                unit="currencyUSD",
                targets=(cost, formula("cost * 24", "per day", period_seconds=3600)),
            ),
            Panel(
                "Savings against the baseline",
                "Cost of the baseline, without its CPU credits, minus cost of the fleet per hour, from CloudWatch.",
                unit="currencyUSD",
                minimum=None,
                targets=(cost, formula("$baseline - cost", "saved per hour")),
            ),
            Panel(
                "Savings",
                "Saved share of the baseline, which has no CPU credits, from CloudWatch: at least this is saved.",
                kind="gauge",
                unit="percent",
                minimum=None,
                maximum=100,
                targets=(cost, formula("100 * ($baseline - cost) / $baseline", "saved")),
            ),
            Panel(
                "Spot share",
                "Live workers on Spot in percent, by the label market in Prometheus.",
                unit="percent",
                maximum=100,
                targets=(query(f"100 * ({spot} or 0 * {live}) / {live}", "Spot"),),
            ),
            Panel(
                "Workers by market",
                "Live workers on Spot and on demand.",
                unit=COUNT,
                targets=(query(f"count by (market) (up{{{WORKERS}}} == 1)", "{{market}}"),),
            ),
        ],
    )


def own_metrics() -> Json:
    return dashboard(
        uid="node-fleet",
        title="node-fleet",
        description="node-fleet itself from Prometheus alone: runs, decisions, workers, launches, removals and cost.",
        variables=[],
        panels=[*_own_state(), *_own_counts()],
    )


def _own_state() -> list[Panel]:
    held, age = f"node_fleet_lock_held{{{OWN}}}", "node_fleet_{}_age_seconds{{" + OWN + "}}"
    names = ("wanted", "actual", "usable", "min", "max")
    return [
        Panel(
            "Since the last successful run",
            "Runs start every two minutes; a long operation holds the lock. Above 10 minutes the fleet is not scaled.",
            kind="stat",
            unit="s",
            width=6,
            marks=(("yellow", 300), ("red", 600)),
            targets=(query(f"time() - node_fleet_last_success_timestamp_seconds{{{OWN}}}", "seconds"),),
        ),
        Panel(
            "Pending pods seen",
            "Unschedulable pods that the last run saw.",
            kind="stat",
            unit=COUNT,
            width=6,
            marks=(("yellow", 1), ("red", 6)),
            targets=(query(f"node_fleet_pending_pods{{{OWN}}}", "pods"),),
        ),
        Panel(
            "Cost per hour",
            "Estimate of the last run, of the known prices.",
            kind="stat",
            unit="currencyUSD",
            width=6,
            targets=(query(f"node_fleet_cost_usd_per_hour{{{OWN}}}", "fleet"),),
        ),
        Panel(
            "Paused",
            "1 while an operator has paused the fleet.",
            kind="stat",
            unit=COUNT,
            width=6,
            marks=(("yellow", 1),),
            targets=(query(f"node_fleet_paused{{{OWN}}}", "paused"),),
        ),
        Panel(
            "Workers",
            "Wanted by the last decision, actual, usable, and the limits.",
            unit=COUNT,
            targets=tuple(query(f"node_fleet_workers_{name}{{{OWN}}}", name) for name in names),
            limits=("min", "max"),
        ),
        Panel(
            "Age of lock and operation",
            "0 while no run holds the lock and no operation is open.",
            unit="s",
            targets=(
                query(f"{age.format('lock')} or 0 * {held}", "lock"),
                query(f"sum without (kind) ({age.format('operation')}) or 0 * {held}", "operation"),
            ),
        ),
    ]


def _own_counts() -> list[Panel]:
    hourly = "sum by ({}) (increase(node_fleet_{}_total{{" + OWN + "}}[1h]))"
    return [
        Panel(
            "Decisions per hour",
            "By action; none means that nothing had to change.",
            unit=COUNT,
            targets=(query(hourly.format("action", "decisions"), "{{action}}"),),
        ),
        Panel(
            "Runs per hour",
            "By result.",
            unit=COUNT,
            targets=(query(hourly.format("result", "runs"), "{{result}}"),),
            colours=(("failed", "red"), ("succeeded", "green")),
        ),
        Panel(
            "Launches per hour",
            "By result and reason: joined, not_joined, refused (no instance), unknown.",
            unit=COUNT,
            targets=(query(hourly.format("result, reason", "launches"), "{{result}}: {{reason}}"),),
        ),
        Panel(
            "Removals per hour",
            "By the last phase of the removal and reason: forgotten is complete, undone and skipped keep the worker.",
            unit=COUNT,
            targets=(query(hourly.format("result, reason", "removals"), "{{result}}: {{reason}}"),),
        ),
    ]


DASHBOARDS = (cluster_overview, autoscaler_performance, application_metrics, cost_tracking, own_metrics)


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
