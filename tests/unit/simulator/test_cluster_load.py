"""Load, autoscaling and the exact counters of the simulated cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.clock import VirtualClock
from simulator.cluster.load.applications import ApplicationSpec, Autoscale
from simulator.cluster.load.curves import CurveError, constant, diurnal, flash_sale, linear, series, steps
from simulator.cluster.load.meters import CPU_MODES, LATENCY_BUCKETS_SECONDS
from simulator.cluster.model import SimulatedCluster
from tests.support.tiers import examples


def a_cluster(workers: int = 1) -> tuple[VirtualClock, SimulatedCluster]:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock, add_ons=False)
    cluster.add_server("i-server", "eu-west-1a")
    for number in range(workers):
        cluster.add_worker(f"i-w{number}")
    return clock, cluster


def totals(cluster: SimulatedCluster, application: str) -> dict[str, float]:
    return cluster.application(application).counters.read(cluster.now())


def test_cpu_seconds_are_exact_between_changes() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", curve=constant(20.0), idle_cpu_milli=0))
    clock.advance(5)
    before = cluster.node_cpu_seconds("i-w0")
    clock.advance(100)
    after = cluster.node_cpu_seconds("i-w0")
    busy = sum(after[mode] - before[mode] for mode in CPU_MODES if mode != "idle")
    assert busy == pytest.approx(100 * (0.2 + 0.04))
    assert after["idle"] - before["idle"] == pytest.approx(100 * (2 - 0.24))


def test_reading_at_any_instant_changes_nothing() -> None:
    readings = []
    for stops in (1, 50):
        clock, cluster = a_cluster()
        cluster.add_application(ApplicationSpec(name="web", curve=linear([(0, 10), (600, 40)])))
        for _ in range(stops):
            clock.advance(600 / stops)
            cluster.node_cpu_seconds("i-w0")
            cluster.truth()
        readings.append(cluster.node_cpu_seconds("i-w0"))
    for mode in CPU_MODES:
        assert readings[0][mode] == pytest.approx(readings[1][mode])


def test_all_modes_together_are_cores_times_seconds() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", curve=steps([(0, 1), (100, 90), (200, 3)])))
    clock.advance(1000)
    assert sum(cluster.node_cpu_seconds("i-w0").values()) == pytest.approx(2 * 1000)


def test_truth_weights_cpu_by_cores_over_usable_live_workers() -> None:
    clock, cluster = a_cluster()
    cluster.add_worker("i-big", instance_type="t3.xlarge")
    spec = ApplicationSpec(
        name="web", curve=constant(100.0), idle_cpu_milli=0, cpu_limit_milli=1000,
        node_selector={"kubernetes.io/hostname": "i-w0"},
    )  # fmt: skip
    cluster.add_application(spec)
    clock.advance(5)
    truth = cluster.truth()
    assert truth.cpu_percent == pytest.approx(100 * (1.04 + 0.04) / 6)
    assert truth.cpu_max_percent == pytest.approx(52)
    cluster.cordon("i-w0")
    assert cluster.truth().cpu_percent == pytest.approx(1)
    cluster.instance_ended("i-big")
    assert cluster.truth().cpu_percent is None


def test_a_full_node_is_busy_to_its_limit_and_leaves_the_surplus_unserved() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(
        ApplicationSpec(name="web", replicas=5, cpu_limit_milli=1000, curve=constant(500.0), idle_cpu_milli=0)
    )
    clock.advance(60)
    application, total = cluster.application("shop/web"), totals(cluster, "shop/web")
    assert cluster.truth().cpu_percent == pytest.approx(100)
    assert application.served_rate == pytest.approx(500 * 2 / 5.04)
    assert total["errors"] == pytest.approx((500 - application.served_rate) * 55 + 500 * 5)


def test_a_queue_grows_by_what_is_not_served() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(
        ApplicationSpec(name="jobs", cpu_limit_milli=105, curve=steps([(0, 15), (600, 5)]), queues=True)
    )
    clock.advance(5)
    start = cluster.application("shop/jobs").queue_depth(clock.now())
    assert start == pytest.approx(15 * 5)
    clock.advance(100)
    assert cluster.application("shop/jobs").queue_depth(clock.now()) == pytest.approx(start + 5 * 100)
    clock.advance(3600)
    assert cluster.application("shop/jobs").queue_depth(clock.now()) == pytest.approx(0, abs=30)
    assert totals(cluster, "shop/jobs")["errors"] == 0


def test_memory_is_total_minus_what_pods_and_system_use() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", memory_usage_mib=500))
    clock.advance(5)
    assert cluster.node_memory_mib("i-w0") == (2048, 2048 - 300 - 500)


def test_replicas_follow_the_load_and_decrease_only_after_the_stabilisation() -> None:
    clock, cluster = a_cluster(workers=4)
    autoscale = Autoscale(min_replicas=2, max_replicas=20, scale_down_stabilisation_seconds=300)
    cluster.add_application(
        ApplicationSpec(
            name="web",
            replicas=2,
            curve=steps([(0, 30), (600, 175), (1200, 30)]),
            autoscale=autoscale,
            idle_cpu_milli=0,
        )
    )
    clock.advance(599)
    assert cluster.application("shop/web").replicas == 2
    clock.advance(120)
    assert cluster.application("shop/web").replicas == 10
    clock.advance(481 + 299)
    assert cluster.application("shop/web").replicas == 10
    clock.advance(30)
    assert cluster.application("shop/web").replicas == 2


def test_replicas_never_leave_their_bounds() -> None:
    clock, cluster = a_cluster(workers=4)
    autoscale = Autoscale(min_replicas=2, max_replicas=5)
    cluster.add_application(
        ApplicationSpec(name="web", curve=steps([(0, 0), (300, 1000), (900, 0)]), autoscale=autoscale)
    )
    seen = set()
    for _ in range(60):
        clock.advance(30)
        seen.add(cluster.application("shop/web").replicas)
    assert (min(seen), max(seen)) == (2, 5)


def test_latency_buckets_grow_with_what_is_served_and_never_cross() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", curve=constant(10.0)))
    clock.advance(100)
    application, total = cluster.application("shop/web"), totals(cluster, "shop/web")
    counts = [total[f"latency_le_{bound}"] for bound in LATENCY_BUCKETS_SECONDS]
    assert counts == sorted(counts)
    assert counts[-1] == pytest.approx(total["served"])
    assert total["latency_seconds_sum"] == pytest.approx(total["served"] * application.mean_latency_seconds)


def test_unschedulable_pods_are_in_the_timeline() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", replicas=10, curve=constant(1.0)))
    clock.advance(10)
    line = cluster.snapshot_line()
    assert (line.running_pods, line.unschedulable_pods, line.pending_pods) == (7, 3, 3)
    assert (line.workers_usable, line.workers_booting, line.load_per_second) == (1, 0, 1.0)


@pytest.mark.parametrize(
    ("curve", "at", "rate"),
    [
        (steps([(0, 1), (60, 5)]), 59.9, 1),
        (steps([(0, 1), (60, 5)]), 60, 5),
        (linear([(0, 0), (100, 50)]), 50, 25),
        (linear([(10, 3), (100, 50)]), 0, 3),
        (linear([(0, 0), (100, 50)]), 1000, 50),
        (diurnal(10, 110, peak_hour=14), 14 * 3600, 110),
        (diurnal(10, 110, peak_hour=14), 2 * 3600, 10),
        (diurnal(10, 110, peak_hour=14, start_hour=14), 0, 110),
        (flash_sale(base=1, peak=9, start_seconds=10, ramp_seconds=10, hold_seconds=10, fall_seconds=10), 15, 5),
        (flash_sale(base=1, peak=9, start_seconds=10, ramp_seconds=10, hold_seconds=10, fall_seconds=10), 25, 9),
        (flash_sale(base=1, peak=9, start_seconds=10, ramp_seconds=10, hold_seconds=10, fall_seconds=10), 41, 1),
    ],
)
def test_curves_at_their_corners(curve, at: float, rate: float) -> None:  # type: ignore[no-untyped-def]
    assert curve(at) == pytest.approx(rate)


def test_a_series_reads_the_last_column_row_by_row(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "series.csv"
    path.write_text("minute,requests\n0,10\n1,20\n2,30\n")
    curve = series(path, scale=2, step_seconds=60)
    assert [curve(at) for at in (0, 59, 60, 500)] == [20, 20, 40, 60]


def test_times_of_a_curve_must_grow() -> None:
    with pytest.raises(CurveError, match=r"must grow, got \[5, 5\]"):
        steps([(5, 1), (5, 2)])


@examples(25)
@given(st.lists(st.floats(0, 400), min_size=2, max_size=8), st.integers(1, 3))
def test_served_and_unserved_add_up_to_what_was_offered(rates: list[float], workers: int) -> None:
    clock, cluster = a_cluster(workers)
    curve = steps([(60.0 * place, rate) for place, rate in enumerate(rates)])
    cluster.add_application(
        ApplicationSpec(name="web", curve=curve, autoscale=Autoscale(min_replicas=1, max_replicas=12))
    )
    clock.advance(60 * len(rates))
    total = totals(cluster, "shop/web")
    assert total["offered"] == pytest.approx(sum(rates) * 60)
    assert total["served"] + total["unserved"] == pytest.approx(total["offered"])
