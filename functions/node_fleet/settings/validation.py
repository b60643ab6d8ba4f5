"""Finds settings that are each allowed but contradict each other; every message names both with their values."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from node_fleet.domain.model.custom_metric import CustomMetric
from node_fleet.domain.model.hibernation import midnight_warning
from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.local_time import is_zone
from node_fleet.settings.groups import SettingValues
from node_fleet.settings.parsing import nearest

if TYPE_CHECKING:
    from node_fleet.domain.cost.limits import Limits

MACHINE_SECONDS = 3600
"""TimeoutSeconds of the autoscaler's state machine: no run lasts longer."""
POLL_EVENTS = 9
"""History events of one round of a polling loop: Wait 2, Task 5, Choice 2."""
RETRIED_POLL_EVENTS = 27
"""The same when every attempt of the Task but the last fails: 6 retries of 3 events."""
NETWORK_RETRY_SECONDS, NETWORK_RETRIES = 15, 6
"""While Lambda recreates the network interfaces of a function in the VPC, its state is retried after this pause."""
NETWORK_RETRY_EVENTS = MACHINE_SECONDS // NETWORK_RETRY_SECONDS * 3
"""As many of these retries as a run has time for, of 3 events each."""
BESIDE_EVENTS = 200
"""Upper limit of history events when every state of the machine runs once."""
ROUND_EVENTS = 80
"""Upper limit of history events of one more round or target, in which each of its states runs once."""
HISTORY_LIMIT, AWS_HISTORY_LIMIT = 10_000, 25_000
LONGEST_STEP_SECONDS = 90 + NETWORK_RETRIES * NETWORK_RETRY_SECONDS
"""The longest TimeoutSeconds of a state that holds the lock, with the pauses of its network retries."""
UNRENEWED_SECONDS = 135 + NETWORK_RETRIES * NETWORK_RETRY_SECONDS
"""CollectMetrics and Decide do not renew the lease: the same for both and for CheckSetAside before them."""


CREATE = "create"
"""The value of alert_topic_critical with which the deployment creates the topic."""


def _is_topic(arn: str, region: str) -> bool:
    return re.fullmatch(rf"arn:aws[a-z-]*:sns:{region}:\d{{12}}:[\w-]{{1,256}}", arn) is not None


def _topic_problems(s: SettingValues) -> list[str]:
    """What is wrong with the topic of critical messages; a FIFO topic takes no message without a group."""
    topic = s.alert_topic_critical
    if topic in ("", CREATE):
        return []
    if not _is_topic(topic, s.region):
        return [
            f"alert_topic_critical={topic}: expected {CREATE}, nothing, or the ARN of an SNS topic in {s.region} such "
            f"as arn:aws:sns:{s.region}:123456789012:on-call"
        ]
    own = {f"{s.cluster_id}-messages": "receives every message", f"{s.cluster_id}-alerts": "starts runs"}
    does = own.get(topic.rpartition(":")[2])
    return [f"alert_topic_critical={topic}: this topic of node-fleet {does}, expected another one"] if does else []


def contradictions(s: SettingValues) -> list[str]:
    """One message for each contradiction between settings."""
    found: list[str] = []
    pairs = (
        ("min_workers", "max_workers", False),
        ("cpu_down_percent", "cpu_up_percent", True),
        ("cpu_up_percent", "cpu_urgent_percent", False),
        ("memory_down_percent", "memory_up_percent", True),
        ("on_demand_minimum", "max_workers", False),
        ("interval_seconds", "reading_gap_seconds", True),
        ("lease_skew_seconds", "lease_seconds", True),
        ("join_limit_seconds", "operation_limit_seconds", True),
        ("step_normal", "step_urgent", False),
        ("interval_jitter_seconds", "interval_seconds", True),
        ("join_back_off_seconds", "join_back_off_max_seconds", False),
        ("scale_up_back_off_seconds", "scale_up_back_off_max_seconds", False),
        ("drain_back_off_seconds", "drain_back_off_max_seconds", False),
        ("predictive_min_days", "history_days", True),
        ("headroom_workers", "max_workers", True),
    )
    for low, high, strict in pairs:
        a, b = getattr(s, low), getattr(s, high)
        if a > b or (strict and a == b):
            found.append(f"{low}={a:g} must be {'below' if strict else 'at most'} {high}={b:g}")
    found += _topic_problems(s)
    if not is_zone(s.timezone):
        import zoneinfo

        near = nearest(s.timezone, zoneinfo.available_timezones())
        found.append(f"timezone={s.timezone}: expected an IANA zone such as Asia/Dhaka{near}")
    if not s.launch_template_version.isdigit():
        found.append(
            f"launch_template_version={s.launch_template_version}: expected an explicit number, not $Default or $Latest"
        )
    found += _address_problems(s)
    found += _image_problems(s)
    found += _decision_problems(s)
    found += _headroom_problems(s)
    if s.spot_learning != "off" and not s.spot_percent:
        found.append(
            f"spot_learning={s.spot_learning} with spot_percent=0, which launches no Spot worker: expected "
            "spot_percent above 0, or spot_learning=off"
        )
    found += _hibernation_problems(s)
    found += _standby_problems(s)
    found += _lease_problems(s)
    found += _history_problems(s)
    return found


BOOT_SECONDS = 120
"""How much of the join limit the boot of a worker takes before it pulls images."""


def _image_problems(s: SettingValues) -> list[str]:
    """A worker that still pulls images when the join limit is over would be terminated."""
    most = s.join_limit_seconds - BOOT_SECONDS
    if not s.image_wait_seconds or s.image_wait_seconds <= most:
        return []
    return [
        f"image_wait_seconds={s.image_wait_seconds}: a worker boots and pulls its images within join_limit_seconds="
        f"{s.join_limit_seconds}: expected at most {max(0, most)}, or join_limit_seconds of at least "
        f"{s.image_wait_seconds + BOOT_SECONDS}"
    ]


def limit_problems(s: SettingValues, limits: Limits | None) -> list[str]:
    """What is wrong with the limits in money and vCPUs: each type must be known, and each minimum must fit.

    A minimum must fit with On-Demand workers of the lightest type, because Spot may have no capacity. So must the
    standby workers above min_workers, as they must below max_workers: else they could never be started.
    """
    if limits is None:
        return []
    if unknown := limits.unknown():
        return [f"{text}, expected other instance_types, or no such limit" for text in unknown]
    minimums = [(f"min_workers={s.min_workers}" if s.min_workers else "a single worker", max(1, s.min_workers))]
    minimums += [(f"schedules {window.text!r}", window.minimum) for window in s.schedules]
    if s.standby_workers:
        both = f"min_workers={s.min_workers} with standby_workers={s.standby_workers}"
        minimums.append((both, s.min_workers + s.standby_workers))
    least, most, found = limits.least("on-demand"), limits.most, []
    for name, workers in minimums:
        if workers * least.micro_usd > most.micro_usd:
            usd = math.ceil(workers * least.micro_usd / 100) / 10_000
            found.append(
                f"max_usd_per_hour={s.max_usd_per_hour:g}: {name} needs {usd:g} USD an hour (On-Demand, lightest type, "
                f"with volume and address), expected {usd:g} or more"
            )
        if workers * least.vcpu > most.vcpu:
            vcpu = workers * least.vcpu
            found.append(f"max_vcpu={s.max_vcpu}: {name} needs {vcpu} vCPU, expected {vcpu} or more")
    return found


def ineffective(s: SettingValues) -> list[str]:
    """One message for each setting that is allowed but can never act beside the others."""
    if s.min_workers < s.max_workers:
        return []
    wanted = [f"drift={s.drift}"] if s.drift == "replace" else []
    wanted += [f"expire_after_seconds={s.expire_after_seconds}"] if s.expire_after_seconds else []
    wanted += ["repair=true"] if s.repair else []
    wanted += ["spot_learning=return"] if s.spot_learning == "return" else []
    if not wanted:
        return []
    return [
        f"max_workers={s.max_workers} is min_workers: no worker that serves is ever replaced ({', '.join(wanted)}), "
        "because the maximum allows no launch before its removal, and the minimum no removal before a launch"
    ]


def surprises(s: SettingValues) -> dict[str, str]:
    """What is allowed in these settings and still surprises, each with what to change."""
    found = {}
    if warning := midnight_warning(s.hibernate):
        found[f"hibernate: {warning}"] = "change hibernate, or leave it when that is meant"
    if s.preset == "adaptive" and s.idle_seconds:
        found[
            f"idle_seconds={s.idle_seconds} acts only while the pod requests of most workers are unknown, because the "
            "preset adaptive learns its scale-down delay; change_cost makes it shorter or longer"
        ] = "leave idle_seconds out; to remove workers earlier, lower change_cost"
    return found


def max_history_events(s: SettingValues, *, with_retries: bool = False) -> int:
    """History events of the longest run that these settings allow: every loop reaches its limit, within the hour."""
    targets = s.max_targets
    if s.hibernate:
        from node_fleet.domain.model.hibernation import MOST_TARGETS

        targets = max(targets, MOST_TARGETS)
    loops = (
        (s.max_rounds, s.join_limit_seconds, s.join_poll_seconds),
        (targets, s.drain_limits.state_seconds, s.drain_poll_seconds),
        (targets, s.terminate_limit_seconds, s.terminate_poll_seconds),
    )
    polls = sum(times * (seconds // poll + 2) for times, seconds, poll in loops)
    within_the_hour = MACHINE_SECONDS // min(poll for *_, poll in loops) + 1
    poll_events, network_events = (RETRIED_POLL_EVENTS, NETWORK_RETRY_EVENTS) if with_retries else (POLL_EVENTS, 0)
    rounds = BESIDE_EVENTS + ROUND_EVENTS * (s.max_rounds + targets)
    return rounds + poll_events * min(polls, within_the_hour) + network_events


def _history_problems(s: SettingValues) -> list[str]:
    """Step Functions ends a run at 25,000 events: the longest run stays below 10,000, with all retries below 25,000."""
    plain, retried = max_history_events(s), max_history_events(s, with_retries=True)
    if plain < HISTORY_LIMIT and retried < AWS_HISTORY_LIMIT:
        return []
    return [
        f"join_poll_seconds={s.join_poll_seconds}, drain_poll_seconds={s.drain_poll_seconds}, "
        f"terminate_poll_seconds={s.terminate_poll_seconds}: a run could write {plain} history events "
        f"({retried} with retries), expected under {HISTORY_LIMIT} (under {AWS_HISTORY_LIMIT}): set longer "
        f"pauses, shorter limits, or lower max_rounds={s.max_rounds} or max_targets={s.max_targets}"
    ]


def _lease_problems(s: SettingValues) -> list[str]:
    """The lease must last longer than the longest step and the longest time between two renewals."""
    pause = max(s.join_poll_seconds, s.drain_poll_seconds, s.terminate_poll_seconds)
    needed = max(LONGEST_STEP_SECONDS + pause, UNRENEWED_SECONDS + s.scheduling_grace_seconds) + s.lease_skew_seconds
    if s.lease_seconds > needed:
        return []
    return [
        f"lease_seconds={s.lease_seconds} must be above {needed}, which covers the longest step "
        f"({LONGEST_STEP_SECONDS} s), the pause between renewals, "
        f"scheduling_grace_seconds={s.scheduling_grace_seconds} and lease_skew_seconds={s.lease_skew_seconds}"
    ]


def _standby_problems(s: SettingValues) -> list[str]:
    """A standby worker is launched and started below the maximum."""
    most = max(0, s.max_workers - s.min_workers)
    if s.standby_workers <= most:
        return []
    return [
        f"standby_workers={s.standby_workers}: more workers than max_workers={s.max_workers} allows above "
        f"min_workers={s.min_workers} could never be started, expected at most {most}"
    ]


def _address_problems(s: SettingValues) -> list[str]:
    if "@" not in s.prometheus_url:
        return []
    from urllib.parse import urlsplit

    address = urlsplit(s.prometheus_url)
    if address.username is None:
        return []
    bare = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
    return [
        f"prometheus_url={bare} contained a user or password, which would be visible in the environment and in logs:"
        f" store them in the secret that prometheus_secret names"
    ]


def _decision_problems(s: SettingValues) -> list[str]:
    """Contradictions between settings that only decisions use."""
    found = [problem for m in s.custom_metrics for problem in _metric_problems(m)]
    names = [m.name for m in s.custom_metrics]
    found += [
        f"custom_metrics {name}: given {names.count(name)} times, expected once"
        for name in sorted(set(names))
        if names.count(name) > 1
    ]
    for w in s.schedules:
        if w.minimum > s.max_workers:
            found.append(f"schedules {w.text!r}: minimum {w.minimum} is above max_workers={s.max_workers}")
    youngest, needed = (
        s.expire_after_seconds * (1 - s.expire_jitter_percent / 100),
        s.join_limit_seconds + s.bake_seconds,
    )
    if s.expire_after_seconds and youngest <= needed:
        found.append(
            f"expire_after_seconds={s.expire_after_seconds}: a replacement would expire before it has proved itself, "
            "and workers would be replaced without end: expected 0 for no limit, or a time that is, even "
            f"expire_jitter_percent={s.expire_jitter_percent:g} earlier, above "
            f"join_limit_seconds={s.join_limit_seconds} and bake_seconds={s.bake_seconds} together"
        )
    thresholds = [("cpu", s.cpu_down_percent, s.cpu_up_percent)]
    thresholds += [("memory", s.memory_down_percent, s.memory_up_percent)] if s.use_memory else []
    for label, down, up in thresholds:
        limit = up - s.projection_margin_percent
        if down < up and limit <= 0:
            found.append(
                f"projection_margin_percent={s.projection_margin_percent:g}: no worker could ever be removed, "
                f"expected under {label}_up_percent={up:g}"
            )
    return found


def _headroom_problems(s: SettingValues) -> list[str]:
    """Headroom is chosen once, by a strategy that does not learn its own, and for pods that some type holds."""
    pods = s.headroom_pods
    given = [f"headroom_workers={s.headroom_workers}"] * bool(s.headroom_workers)
    given += [f"headroom_pods={pods.text}"] if pods else []
    if not given:
        return []
    found = [f"{' and '.join(given)}: keep one of them"] if len(given) > 1 else []
    if s.strategy == "adaptive":
        found.append(
            f"{given[0]} with strategy=adaptive: adaptive learns its headroom and removes what is not worth its price: "
            "expected no headroom beside it (wait_cost sets how much adaptive keeps), or strategy=thresholds"
        )
    sizes = [offered(kind) for kind in s.instance_types]
    if (
        pods
        and sizes
        and not any(size is None or (size[0] >= pods.cpu_milli and size[1] >= pods.memory_mib) for size in sizes)
    ):
        found.append(
            f"headroom_pods={pods.text}: no type of instance_types={','.join(s.instance_types)} holds such a pod, "
            "expected a smaller pod or a larger type"
        )
    return found


def _hibernation_problems(s: SettingValues) -> list[str]:
    """A time off must be long enough to be begun, and end: a fleet that is always off is no fleet."""
    if not s.hibernate:
        return []
    from node_fleet.domain.model.hibernation import LEAST_OFF_SECONDS, WEEK_MINUTES, off_minutes

    needed = s.hibernate_drain_seconds + s.hibernate_lead_seconds + LEAST_OFF_SECONDS
    found = [
        f"hibernate {w.text!r}: it is {w.length_minutes} min long, expected at least {-(-needed // 60)} min: "
        f"hibernate_drain_seconds={s.hibernate_drain_seconds}, hibernate_lead_seconds={s.hibernate_lead_seconds} and "
        f"{LEAST_OFF_SECONDS // 60} min in which the fleet is off"
        for w in s.hibernate
        if w.length_minutes * 60 < needed
    ]
    if s.hibernate_at_limit == "stay-on" and not s.hibernate_drain_seconds:
        found.append("hibernate_at_limit=stay-on with hibernate_drain_seconds=0: no worker is drained, expected a time")
    if off_minutes(s.hibernate) == WEEK_MINUTES:
        found.append(f"hibernate={'; '.join(w.text for w in s.hibernate)}: the fleet would never be on, expected less")
    return found


def _metric_problems(m: CustomMetric) -> list[str]:
    found = []
    if not m.name:
        found.append("custom_metrics: name is empty, expected a name")
    if not m.query:
        found.append(f"custom_metrics {m.name}: query is empty, expected a PromQL query")
    if not 1 <= m.readings <= 30:
        found.append(f"custom_metrics {m.name}: readings={m.readings}, expected 1 to 30")
    if not m.low < m.high:
        found.append(f"custom_metrics {m.name}: low={m.low:g} must be below high={m.high:g}")
    if m.minimum_traffic < 0:
        found.append(f"custom_metrics {m.name}: minimum_traffic={m.minimum_traffic:g}, expected 0 or more")
    if m.minimum_traffic > 0 and not m.traffic_query:
        found.append(f"custom_metrics {m.name}: minimum_traffic without traffic_query, expected a PromQL query")
    return found
