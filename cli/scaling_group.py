"""An Auto Scaling group of EC2 as settings of node-fleet, with a sentence about each difference. It calls nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cli.proposal import Line, Proposal, with_longer_operations, within

OLDEST = frozenset({"OldestInstance", "OldestLaunchTemplate", "OldestLaunchConfiguration"})
LEAST_CPU_PERCENT = 20.0
"""Below it no worker could be removed by the default projection_margin_percent."""
Group = Mapping[str, Any]


def propose(group: Group, policies: Iterable[Group], *, template: Group, zones: Mapping[str, str]) -> Proposal:
    """The settings for a group as DescribeAutoScalingGroups returns it.

    policies: its scaling policies. template: the data of its launch template version. zones: zone of each subnet.
    """
    problems: list[str] = []
    lines = [*_size(group), *_types(group, template, problems), *_markets(group, template), *_behaviour(group)]
    for policy in policies:
        lines.append(_policy(policy))
    attach = _attachment(group, zones, problems)
    return Proposal(lines=with_longer_operations(lines), problems=tuple(problems), attach=attach)


def _size(group: Group) -> Iterable[Line]:
    yield Line(
        source=f"MinSize {group['MinSize']}, MaxSize {group['MaxSize']}",
        settings={"min_workers": group["MinSize"], "max_workers": group["MaxSize"]},
        difference=f"the desired capacity {group['DesiredCapacity']} is decided anew in every run",
    )


def _types(group: Group, template: Group, problems: list[str]) -> Iterable[Line]:
    overrides = _mixed(group).get("LaunchTemplate", {}).get("Overrides") or []
    types = [one["InstanceType"] for one in overrides if "InstanceType" in one]
    if any("InstanceRequirements" in one for one in overrides) or (not types and "InstanceRequirements" in template):
        needs = next((o["InstanceRequirements"] for o in overrides if "InstanceRequirements" in o), None)
        yield _requirements(needs or template["InstanceRequirements"])
        return
    types = types or [t for t in (template.get("InstanceType"),) if t]
    if not types:
        problems.append("the group names no instance type: give instance_types in the settings")
        return
    weights = any("WeightedCapacity" in one for one in overrides)
    why = "node-fleet counts workers, not weights" if weights else "on-demand in this order, Spot by price and capacity"
    yield Line(source=f"instance types {', '.join(types)}", settings={"instance_types": types}, difference=why)


def _requirements(needs: Group) -> Line:
    cpu, memory = needs.get("VCpuCount", {}), needs.get("MemoryMiB", {})
    low, high = cpu.get("Min", 1), cpu.get("Max") or 1024
    found = {"vcpus": [low, high], "memory_gib": [memory.get("Min", 0) / 1024, (memory.get("Max") or 2**25) / 1024]}
    if needs.get("BurstablePerformance") in ("included", "excluded", "required"):
        found["burstable"] = needs["BurstablePerformance"]
    if excluded := needs.get("ExcludedInstanceTypes"):
        found["excluded"] = list(excluded)
    why = "only vCPUs, memory, burstable and excluded types are taken over; then run node-fleet types --record"
    return Line(source="instance requirements", settings={"instance_requirements": found}, difference=why)


def _markets(group: Group, template: Group) -> Iterable[Line]:
    spread = _mixed(group).get("InstancesDistribution")
    if spread is None:
        spot = template.get("InstanceMarketOptions", {}).get("MarketType") == "spot"
        source = f"market {'Spot' if spot else 'on-demand'} of the launch template"
        why = "remove InstanceMarketOptions from the template: node-fleet chooses the market" if spot else ""
        yield Line(source=source, settings={"spot_percent": 100 if spot else 0}, difference=why)
        return
    above, base = spread.get("OnDemandPercentageAboveBaseCapacity", 100), spread.get("OnDemandBaseCapacity", 0)
    yield Line(
        source=f"on-demand base {base}, {above} % on-demand above it",
        settings={"spot_percent": 100 - above, "on_demand_minimum": base},
        difference="spot_percent is the share of the whole fleet, reached by launches, not by replacing workers",
    )
    if price := spread.get("SpotMaxPrice"):
        yield Line(source=f"Spot maximum price {price}", settings={"spot_max_price": price})
    if strategy := spread.get("SpotAllocationStrategy"):
        why = "node-fleet always uses price-capacity-optimized"
        yield Line(source=f"Spot strategy {strategy}", difference="" if strategy in why else why)


def _behaviour(group: Group) -> Iterable[Line]:
    if cooldown := group.get("DefaultCooldown"):
        why = "unschedulable pods end it early (pending_bypasses_cooldown)"
        yield Line(source=f"cooldown {cooldown} s", settings={"cooldown_up_seconds": cooldown}, difference=why)
    if grace := group.get("HealthCheckGracePeriod"):
        value, moved = within(grace, 60, 3600, " s")
        why = f"{moved}an instance that is no usable worker by then is terminated"
        yield Line(source=f"grace period {grace} s", settings={"join_limit_seconds": value}, difference=why)
    if lifetime := group.get("MaxInstanceLifetime"):
        why = "launch first, one worker after the other, with a drain"
        yield Line(source=f"maximum lifetime {lifetime} s", settings={"expire_after_seconds": lifetime}, difference=why)
    order = set(group.get("TerminationPolicies") or ["Default"])
    settings = {"scale_down_order": "oldest"} if order & OLDEST else {}
    why = "among workers that are eligible: a group terminates without a drain, node-fleet drains first"
    yield Line(source=f"termination policies {', '.join(sorted(order))}", settings=settings, difference=why)
    for suspended in group.get("SuspendedProcesses") or ():
        name = suspended.get("ProcessName", "")
        yield Line(
            source=f"suspended process {name}", difference="no equivalent; to stop all changes use node-fleet pause"
        )
    if group.get("NewInstancesProtectedFromScaleIn"):
        yield Line(source="protection from scale-in", difference="use node-fleet protect, or annotations of the Node")


def _policy(policy: Group) -> Line:
    target = policy.get("TargetTrackingConfiguration") or {}
    metric = (target.get("PredefinedMetricSpecification") or {}).get("PredefinedMetricType", "")
    source = f"scaling policy {policy['PolicyName']} ({policy['PolicyType']})"
    if policy.get("Enabled") is False:
        return Line(source=source, difference="it is disabled, so it becomes no setting")
    if metric == "ASGAverageCPUUtilization":
        value = min(max(float(target["TargetValue"]), LEAST_CPU_PERCENT), 100.0)
        why = "node-fleet adds workers above it and removes them below cpu_down_percent; it does not hold the value"
        settings = {"preset": "node-fleet", "cpu_up_percent": value, "cpu_down_percent": min(30.0, value / 2)}
        if value >= 85:
            settings["cpu_urgent_percent"] = min(100.0, value + 10)
        return Line(source=source, settings=settings, difference=why)
    if policy["PolicyType"] == "PredictiveScaling":
        why = "predictive=true adds at most one worker before a busy hour"
        return Line(source=source, settings={"predictive": True}, difference=why)
    why = "no equivalent: write the metric as a row of custom_metrics, with a query for Prometheus"
    return Line(source=source, difference=why)


def _attachment(group: Group, zones: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """What mode attach takes over: one subnet for each zone, and the launch template."""
    subnets: dict[str, str] = {}
    for subnet in filter(None, str(group.get("VPCZoneIdentifier", "")).split(",")):
        zone = zones.get(subnet, "")
        if not zone:
            problems.append(f"the zone of subnet {subnet} is unknown")
        elif zone in subnets:
            problems.append(
                f"subnet {subnet} is left out: {zone} has {subnets[zone]}, and mode attach takes one a zone"
            )
        else:
            subnets[zone] = subnet
    template = launch_template_of(group)
    found: dict[str, Any] = {"worker_subnets": subnets} if subnets else {}
    if not template:
        problems.append("the group has no launch template: mode attach needs one, with a version that is a number")
        return found
    found["launch_template_id"] = template["LaunchTemplateId"]
    version = str(template.get("Version", "$Default"))
    if version.isdigit():
        found["launch_template_version"] = int(version)
    else:
        problems.append(
            f"the version of the launch template is {version}: give attach.launch_template_version a number"
        )
    return found


def launch_template_of(group: Group) -> Group:
    """The launch template that the group names; empty when it has a launch configuration."""
    mixed = _mixed(group).get("LaunchTemplate", {}).get("LaunchTemplateSpecification")
    found: Group = mixed or group.get("LaunchTemplate") or {}
    return found


def _mixed(group: Group) -> Group:
    found: Group = group.get("MixedInstancesPolicy") or {}
    return found
