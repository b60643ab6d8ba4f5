"""Settings of decisions: every wrong one is named, with its value, what is allowed and the nearest valid name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.custom_metric import BUILT_IN
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.policy import Policy
from node_fleet.settings import Settings, spec_of
from node_fleet.settings.presets import PRESETS

QUEUE = {"name": "jobs", "query": "q", "high": 10, "low": 1}


def problem(**raw: Any) -> str:
    with pytest.raises(InvalidSettingsError) as caught:
        Settings.from_mapping(raw)
    return str(caught.value)


def test_a_worker_may_pull_images_for_all_of_the_join_limit_but_the_boot() -> None:
    assert Settings.from_mapping({"image_wait_seconds": 180}).image_wait_seconds == 180
    assert Settings.from_mapping({"image_wait_seconds": 1, "join_limit_seconds": 121}).image_wait_seconds == 1


def test_every_problem_of_the_settings_is_an_entry_of_its_own_even_one_with_a_semicolon() -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        Settings.from_mapping({"min_workers": -1, "timezone": "Asia; Dhaka"})
    assert [text.partition("=")[0] for text in caught.value.problems] == ["min_workers", "timezone"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            {"expire_after_seconds": 750, "expire_jitter_percent": 20},
            "expire_after_seconds=750: a replacement would expire before it has proved itself",
        ),
        (
            {"cpu_down_percent": 70, "cpu_up_percent": 70},
            "cpu_down_percent=70 must be below cpu_up_percent=70",
        ),
        (
            {"memory_down_percent": 80},
            "memory_down_percent=80 must be below memory_up_percent=75",
        ),
        ({"cpu_urgent_percent": 60}, "cpu_up_percent=70 must be at most cpu_urgent_percent=60"),
        ({"min_workers": 9, "max_workers": 4}, "min_workers=9 must be at most max_workers=4"),
        ({"step_normal": 3}, "step_normal=3 must be at most step_urgent=2"),
        (
            {"image_wait_seconds": 181},
            "image_wait_seconds=181: a worker boots and pulls its images within join_limit_seconds=300: expected at "
            "most 180, or join_limit_seconds of at least 301",
        ),
        ({"image_wait_seconds": 60, "join_limit_seconds": 100}, "expected at most 0, or join_limit_seconds of at"),
        ({"image_wait_seconds": 901}, "image_wait_seconds=901: expected 0 to 900"),
        (
            {"prometheus_url": "https://ann:hunter2@metrics.example:9090/p"},
            "prometheus_url=https://metrics.example:9090/p contained a user or password",
        ),
        ({"prometheus_url": "http://hunter2@metrics.example"}, "store them in the secret that prometheus_secret names"),
        ({"interval_seconds": 300}, "interval_seconds=300 must be below reading_gap_seconds=300"),
        ({"cpu_readings": 0}, "cpu_readings=0: expected 1 to 30"),
        ({"pending_readings": 0}, "pending_readings=0: expected 1 to 30"),
        ({"readings_kept": 0}, "readings_kept=0: expected 1 to 60"),
        ({"spot_learning": "on"}, "spot_learning=on: expected one of off, avoid, return"),
        ({"spot_noisy_per_100_hours": 0.04}, "spot_noisy_per_100_hours=0.04: expected 0.05 to 100"),
        (
            {"spot_learning": "avoid", "spot_percent": 0},
            "spot_learning=avoid with spot_percent=0, which launches no Spot worker: expected spot_percent above 0",
        ),
        (
            {"timezone": "Asia/Dacca_"},
            "timezone=Asia/Dacca_: expected an IANA zone such as Asia/Dhaka (nearest: Asia/Dacca)",
        ),
        *(
            ({"alert_topic_critical": topic}, f"alert_topic_critical={topic}: expected create, nothing, or the ARN of")
            for topic in (
                "on-call",
                "arn:aws:sns:eu-west-1:123456789012:on-call",
                "arn:aws:sns:ap-southeast-1:1:x",
                "arn:aws:sns:ap-southeast-1:123456789012:on-call.fifo",
            )
        ),
        *(
            (
                {"alert_topic_critical": f"arn:aws:sns:ap-southeast-1:123456789012:node-fleet-prod-{name}"},
                f"this topic of node-fleet {does}, expected another one",
            )
            for name, does in (("messages", "receives every message"), ("alerts", "starts runs"))
        ),
        ({"timezone": "Asia"}, "timezone=Asia: expected an IANA zone"),
        ({"timezone": "../../etc/passwd"}, "timezone=../../etc/passwd: expected an IANA zone"),
        ({"timezone": ""}, "timezone=: expected an IANA zone"),
        (
            {"preset": "algoritm"},
            "preset=algoritm: expected one of node-fleet, algorithm, flowchart, sequence, readme, adaptive "
            "(nearest: algorithm)",
        ),
        ({"strategy": "step"}, "strategy=step: expected one of thresholds, adaptive"),
        ({"cooldown_by": "first"}, "cooldown_by=first: expected one of next, last"),
        ({"weekend_days": "fri,sut"}, "'sut' is not a day, expected mon to sun (nearest: sun)"),
        ({"cpu_reading": 3}, "cpu_reading is not a setting (nearest: cpu_readings)"),
        ({"schedules": "Mon 09:00-09:00: 4"}, "window 'Mon 09:00-09:00: 4' never opens"),
        ({"schedules": "2026-02-30 09:00-12:00: 4"}, "never opens: 2026-02-30 is not in the calendar"),
        ({"schedules": "Mon 24:00-02:00: 4"}, "never opens"),
        ({"schedules": "Mon 09:00-12:00: 0"}, "a minimum of 0 raises nothing, expected 1 or more"),
        ({"schedules": "Mon 09:00-12:00: 40"}, "minimum 40 is above max_workers=10"),
        ({"schedules": "Moon 09:00-12:00: 4"}, "'moon' is not a day, expected Mon to Sun or a date"),
        (
            {"removal_windows": "Mon-Fri 09:00-17:00"},
            "removal_windows=Mon-Fri 09:00-17:00: cannot read window 'Mon-Fri 09:00-17:00', expected e.g. "
            "'only: Mon-Fri 09:00-17:00'",
        ),
        (
            {"headroom_workers": 1, "headroom_pods": {"count": 3, "cpu_milli": 500, "memory_mib": 512}},
            "headroom_workers=1 and headroom_pods=3 pods of 500m CPU and 512 MiB: keep one of them",
        ),
        (
            {"headroom_workers": 1, "preset": "adaptive"},
            "headroom_workers=1 with strategy=adaptive: adaptive learns its headroom",
        ),
        (
            {"headroom_pods": {"count": 3, "cpu_milli": 4000, "memory_mib": 512}},
            "headroom_pods=3 pods of 4000m CPU and 512 MiB: no type of instance_types=t3.small holds such a pod",
        ),
        (
            {"headroom_pods": {"count": 1, "cpu_milli": 100, "memory_mib": 1905}},
            "no type of instance_types=t3.small holds such a pod",
        ),
        (
            {"headroom_pods": {"count": 0, "cpu_milli": 500, "memory_mib": 512}},
            "headroom_pods={'count': 0, 'cpu_milli': 500, 'memory_mib': 512}: count=0, expected 1 to 1000",
        ),
        ({"headroom_pods": '{"count": 3}'}, 'expected an object such as {"count": 3, "cpu_milli": 500'),
        ({"headroom_pods": "3"}, "expected an object such as"),
        ({"headroom_pods": "{"}, "expected an object such as"),
        ({"headroom_workers": 10}, "headroom_workers=10 must be below max_workers=10"),
        ({"removal_windows": "only: Mon 09:00-09:00"}, "window 'only: Mon 09:00-09:00' never opens"),
        ({"removal_windows": 7}, 'removal_windows=7: expected text such as "only: Mon-Fri 09:00-17:00"'),
        ({"disruption_budgets": "[{"}, 'expected a JSON list such as [{"nodes": "1"}]'),
        ({"disruption_budgets": {"nodes": 1}}, 'expected a list such as [{"nodes": "1"}]'),
        ({"disruption_budgets": [3]}, 'row 1, 3: expected an object such as {"nodes": "1"}'),
        ({"disruption_budgets": [{}]}, 'row 1: nodes is missing: expected a number of workers such as "2"'),
        ({"disruption_budgets": [{"nodes": 1}, {"nodes": "101%"}]}, "row 2: nodes='101%': expected a number"),
        ({"disruption_budgets": [{"nodes": True}]}, "row 1: nodes=True: expected a number"),
        ({"disruption_budgets": [{"nodes": -1}]}, "row 1: nodes=-1: expected a number"),
        (
            {"disruption_budgets": [{"nodes": 1, "reasons": ["drift"]}]},
            "row 1: reasons=['drift']: expected a list of idle, drifted, expired, unhealthy",
        ),
        ({"disruption_budgets": [{"nodes": 1, "reasons": []}]}, "row 1: reasons=[]: expected a list of idle"),
        (
            {"disruption_budgets": [{"nodes": 1, "node": 2}]},
            "row 1: node is not known, expected nodes, reasons, schedule, duration, timezone",
        ),
        (
            {"disruption_budgets": [{"nodes": 1, "duration": "1h"}]},
            "row 1: schedule and duration: expected both, or none for a budget that always holds",
        ),
        (
            {"disruption_budgets": [{"nodes": 1, "schedule": "0 25 * * *", "duration": "1h"}]},
            "row 1: schedule='0 25 * * *': wrong hour, expected five fields such as \"0 9 * * mon-fri\" or @daily",
        ),
        (
            {"disruption_budgets": [{"nodes": 1, "schedule": "0 0 9 * * *", "duration": "1h"}]},
            "row 1: schedule='0 0 9 * * *': it has 6 fields, expected five fields",
        ),
        ({"disruption_budgets": [{"nodes": 1, "schedule": 5, "duration": "1h"}]}, "schedule=5: it is no text"),
        (
            {"disruption_budgets": [{"nodes": 1, "schedule": "@daily", "duration": "8784h1m"}]},
            'row 1: duration=\'8784h1m\': expected hours and minutes such as "8h", "30m" or "1h30m", at most 8784h',
        ),
        ({"disruption_budgets": [{"nodes": 1, "schedule": "@daily", "duration": "0m"}]}, "duration='0m': expected"),
        (
            {"disruption_budgets": [{"nodes": 1, "schedule": "@daily", "duration": "1h", "timezone": "Dhaka"}]},
            "row 1: timezone='Dhaka': expected an IANA zone such as Asia/Dhaka",
        ),
        (
            {"disruption_budgets": [{"nodes": 1, "timezone": "Asia/Dhaka"}]},
            "row 1: timezone: only a schedule has one, expected schedule and duration beside it",
        ),
        ({"schedules": "Mon 09:00-25:00: 4"}, "25:00 is not a time of day, expected 00:00 to 24:00"),
        (
            {"projection_margin_percent": 50, "cpu_up_percent": 50, "cpu_down_percent": 20},
            "projection_margin_percent=50",
        ),
        ({"schedules": "Mon 09:00-10:60: 4"}, "10:60 is not a time of day"),
        ({"schedules": "Mon"}, "cannot read window 'Mon', expected e.g. 'Mon-Sat 09:00-21:00: 4'"),
        ({"schedules": "Mon 09:00-24:01: 4"}, "24:01 is not a time of day"),
        ({"custom_metrics": [{"name": "jobs", "query": "q"}]}, "metric jobs has no high and no low"),
        ({"custom_metrics": [{"name": "queue_dept"}]}, "metric queue_dept has no query and no high and no low"),
        ({"custom_metrics": [{"name": "queue_dept"}]}, "(nearest: queue_depth)"),
        ({"custom_metrics": [{**QUEUE, "low": 10}]}, "custom_metrics jobs: low=10 must be below high=10"),
        ({"custom_metrics": [{**QUEUE, "readings": 0}]}, "custom_metrics jobs: readings=0, expected 1 to 30"),
        ({"custom_metrics": [QUEUE, QUEUE]}, "custom_metrics jobs: given 2 times, expected once"),
        ({"custom_metrics": [{**QUEUE, "when_absent": "panic"}]}, "expected one of ignore, hold"),
        ({"custom_metrics": [{**QUEUE, "minimum_traffic": 1}]}, "minimum_traffic without traffic_query"),
        ({"custom_metrics": [{**QUEUE, "hihg": 1}]}, "unknown field 'hihg'"),
        ({"custom_metrics": "{"}, "expected a JSON list"),
        ({"custom_metrics": {"name": "x"}}, "expected a JSON list of metrics"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_what_is_allowed(raw: dict[str, Any], expected: str) -> None:
    assert expected in problem(**raw)


def test_a_worker_may_expire_as_soon_as_its_replacement_has_proved_itself() -> None:
    assert Settings.from_mapping({"expire_after_seconds": 751, "expire_jitter_percent": 20}).expire_after_seconds == 751


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    message = problem(
        preset="redme",
        timezone="Europe/Berln",
        cpu_down_percent=90,
        cpu_readings=0,
        schedules="Mon 09:00-09:00: 4",
        custom_metrics=[{"name": "a", "query": "q"}, {"name": "b", "query": "q"}],
        cooldown_up_second="300",
    )
    for part in (
        "(nearest: readme)",
        "(nearest: Europe/Berlin)",
        "cpu_down_percent=90",
        "cpu_readings=0",
        "never opens",
        "metric a has no high",
        "metric b has no high",
        "(nearest: cooldown_up_seconds)",
    ):
        assert part in message


@pytest.mark.parametrize("name", ["algorithm", "flowchart", "node-fleet", "readme", "sequence"])
def test_a_preset_survives_its_environment(name: str) -> None:
    made = Settings.from_mapping({"preset": name})
    assert Settings.from_env(made.to_env()) == made
    assert made.policy().preset == name


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_value_of_a_preset_is_itself_a_valid_setting(name: str) -> None:
    assert Settings.from_mapping({"preset": name, **PRESETS[name]}) == Settings.from_mapping({"preset": name})


def test_a_setting_goes_before_its_preset() -> None:
    assert Settings.from_mapping({"preset": "flowchart", "cpu_readings": 5}).policy().cpu_readings == 5


def test_policy_and_settings_agree_on_every_default() -> None:
    assert Settings().policy() == Policy()


RENAMED = [
    ("on_demand_floor", 2, "on_demand_minimum"),
    ("dry_pool_seconds", 900, "pool_back_off_seconds"),
    ("sizing", "adaptive", "strategy"),
    ("join_back_off_most_seconds", 7200, "join_back_off_max_seconds"),
    ("scale_up_back_off_most_seconds", 7200, "scale_up_back_off_max_seconds"),
    ("drain_back_off_most_seconds", 7200, "drain_back_off_max_seconds"),
]


@pytest.mark.parametrize(("old", "value", "new"), RENAMED)
def test_an_earlier_name_still_works_and_one_warning_names_both(old: str, value: Any, new: str) -> None:
    with pytest.warns(FutureWarning) as warned:
        settings = Settings.from_mapping({old: value})
    assert getattr(settings, new) == value
    assert [str(one.message) for one in warned] == [f"{old} is deprecated: use {new}, which means the same"]
    env = spec_of(Settings.__dataclass_fields__[new]).env
    with pytest.warns(FutureWarning, match=f"{old.upper()} is deprecated: use {env}"):
        assert Settings.from_env({old.upper(): str(value)}) == settings


@pytest.mark.parametrize(("old", "value", "new"), RENAMED)
def test_an_earlier_name_beside_the_current_one_is_an_error_that_names_both(old: str, value: Any, new: str) -> None:
    assert (
        problem(**{old: value, new: value}) == f"{old} and {new} are the same setting and both are given: remove {old}"
    )


def test_an_earlier_value_still_works_and_one_warning_names_both() -> None:
    with pytest.warns(FutureWarning) as warned:
        assert Settings.from_env({"STRATEGY": "steps"}) == Settings()
    assert [str(one.message) for one in warned] == [
        "STRATEGY=steps is deprecated: use thresholds, which means the same"
    ]


def test_the_policy_comes_back_from_its_own_part_of_the_environment() -> None:
    made = Settings.from_mapping(
        {"preset": "flowchart", "join_limit_seconds": 1000, "operation_limit_seconds": 2000, "max_workers": 7}
    )
    assert "OPERATION_LIMIT_SECONDS" not in made.policy_env
    kept = {name: value for name, value in made.policy_env.items() if name != "JOIN_LIMIT_SECONDS"}
    assert replace(Settings.from_env(kept).policy(), join_limit_seconds=1000) == made.policy()


def test_settings_make_their_policy_once_and_changed_ones_make_their_own() -> None:
    made = Settings(max_workers=7)
    assert made.policy() is made.policy()
    changed = replace(made, max_workers=9)
    assert (changed.policy().max_workers, changed.policy_env["MAX_NODES"]) == (9, "9")


def test_environment_names_stand_once() -> None:
    names = [spec_of(f).env for f in Settings.__dataclass_fields__.values()]
    assert len(names) == len(set(names))


class TestCustomMetrics:
    def test_a_built_in_metric_needs_only_its_name(self) -> None:
        (metric,) = Settings.from_mapping({"custom_metrics": '[{"name": "queue_depth"}]'}).custom_metrics
        assert metric == BUILT_IN[0]

    def test_a_built_in_metric_may_have_other_thresholds(self) -> None:
        (metric,) = Settings.from_mapping(
            {"custom_metrics": [{"name": "queue_depth", "high": 50, "low": 5}]}
        ).custom_metrics
        assert (metric.high, metric.low, metric.query) == (50, 5, BUILT_IN[0].query)

    def test_none_at_all_is_an_empty_list(self) -> None:
        assert Settings.from_env({"CUSTOM_METRICS": "[]"}).custom_metrics == ()

    @given(
        st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.text("abc", min_size=1, max_size=8),
                    "query": st.text(min_size=1),
                    "high": st.floats(10, 100),
                    "low": st.floats(0, 9),
                    "readings": st.integers(1, 30),
                    "when_absent": st.sampled_from(["ignore", "hold"]),
                }
            ),
            max_size=4,
            unique_by=lambda m: m["name"],
        )
    )
    def test_any_list_survives_the_environment(self, metrics: list[dict[str, Any]]) -> None:
        rounded = [{**m, "high": round(m["high"], 4), "low": round(m["low"], 4)} for m in metrics]
        made = Settings.from_mapping({"custom_metrics": json.dumps(rounded)})
        assert Settings.from_env(made.to_env()) == made


def test_every_mistake_of_every_budget_is_reported_at_once() -> None:
    text = problem(disruption_budgets=[{"nodes": "x", "reasons": ["idle"]}, {"nodes": 1, "schedule": "@daily"}])
    assert "row 1: nodes='x'" in text and "row 2: schedule and duration" in text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (
            {"disruption_budgets": [{"nodes": 2}, {"nodes": "20%", "reasons": ["idle", "expired"]}]},
            '[{"nodes":"2"},{"nodes":"20%","reasons":["idle","expired"]}]',
        ),
        (
            {
                "disruption_budgets": [
                    {"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "90m", "timezone": "Asia/Dhaka"}
                ]
            },
            '[{"nodes":"0","schedule":"0 9 * * mon-fri","duration":"1h30m","timezone":"Asia/Dhaka"}]',
        ),
        (
            {"removal_windows": "only: Mon-Fri 09:00-17:00; Sat 10:00-12:00; never: 2026-11-27 00:00-24:00"},
            "only: Mon-Fri 09:00-17:00; only: Sat 10:00-12:00; never: 2026-11-27 00:00-24:00",
        ),
        (
            {"removal_windows": ["never:Fri 22:00-06:00", "only: Mon 01:00-02:00"]},
            "never: Fri 22:00-06:00; only: Mon 01:00-02:00",
        ),
    ],
)
def test_budgets_and_windows_are_the_same_after_the_environment(raw: dict[str, Any], text: str) -> None:
    settings = Settings.from_mapping(raw)
    (name,) = raw
    env = settings.to_env()
    assert env[name.upper()] == text
    again = Settings.from_env(env)
    assert (getattr(again, name), again.policy().budgets) == (getattr(settings, name), settings.policy().budgets)


def test_every_budget_has_a_zone_and_windows_come_first() -> None:
    settings = Settings.from_mapping(
        {
            "timezone": "Asia/Dhaka",
            "removal_windows": "never: Mon 09:00-10:00; only: Tue 09:00-10:00",
            "disruption_budgets": [
                {"nodes": 1},
                {"nodes": 2, "schedule": "@daily", "duration": "1h", "timezone": "Europe/Berlin"},
            ],
        }
    )
    found = [(b.nodes, b.timezone, len(b.only), len(b.never)) for b in settings.policy().budgets]
    assert found == [
        ("0", "Asia/Dhaka", 1, 0),
        ("0", "Asia/Dhaka", 0, 1),
        ("1", "Asia/Dhaka", 0, 0),
        ("2", "Europe/Berlin", 0, 0),
    ]


def test_headroom_pods_are_the_same_after_the_environment_and_count_in_workers() -> None:
    settings = Settings.from_mapping({"headroom_pods": {"count": 3, "cpu_milli": 500, "memory_mib": 952}})
    assert settings.to_env()["HEADROOM_PODS"] == '{"count":3,"cpu_milli":500,"memory_mib":952}'
    assert Settings.from_env(settings.to_env()).headroom_pods == settings.headroom_pods
    assert settings.headroom_in_workers == 1.5, "a t3.small offers 1904 MiB to pods"
    assert Settings.from_mapping({"headroom_workers": 2}).headroom_in_workers == 2
    assert Settings().headroom_in_workers == 0
