"""What the times off save, by the back-test and by the bill."""

from __future__ import annotations

import pytest

from backtest.compare import Assumptions, study
from backtest.off_times import replay_off_times
from backtest.trace import from_rows
from cli.cost import Bill
from node_fleet.domain.cost.fleet_cost import BillLine, standby_hour, standby_monthly_lines
from node_fleet.domain.cost.tariff import Cost
from node_fleet.domain.model.hibernation import off_minutes
from node_fleet.settings import Settings
from tests.support.backtest_loads import BY_WORKERS

MONDAY = 1_789_948_800
ASSUMED = Assumptions(scaling=BY_WORKERS)


def a_week(hours: int = 168) -> object:
    """Two workers' load, hour after hour from Monday 00:00 UTC."""
    return from_rows(((MONDAY + 1800 * n, 2.0) for n in range(2 * hours)), name="week")


@pytest.mark.parametrize(("hibernate", "hours_on"), [("Sun-Fri 19:00-07:00; Sat-Sun", 60), ("Sat-Sun", 120)])
def test_the_workers_cost_the_share_of_the_hours_on(hibernate: str, hours_on: int) -> None:
    settings, trace = Settings.from_mapping({"hibernate": hibernate}), a_week()
    shown = study(trace, settings, ASSUMED)  # type: ignore[arg-type]
    off = replay_off_times(trace, settings, ASSUMED, shown)  # type: ignore[arg-type]
    assert off is not None
    assert off.hours == 168 and off.hours_on == pytest.approx(hours_on, abs=2)
    assert off.saved_percent == pytest.approx(100 * (1 - hours_on / 168), abs=2)
    assert off.as_data()["saved_percent"] == round(off.saved_percent, 1)
    assert off.sentence.startswith(f"with the times off the fleet is on {off.hours_on:.0f} of 168 h: the workers cost ")


def test_the_volumes_of_standby_workers_stay_on_the_bill_in_the_hours_off() -> None:
    settings, trace = Settings.from_mapping({"hibernate": "Sat-Sun", "standby_workers": 3}), a_week()
    shown = study(trace, settings, ASSUMED)  # type: ignore[arg-type]
    off = replay_off_times(trace, settings, ASSUMED, shown)  # type: ignore[arg-type]
    assert off is not None
    volumes = standby_hour(settings.tariff(), 3).usd * 168
    saved = (off.always.usd - volumes) * (1 - off.hours_on / off.hours)
    assert off.always.usd - off.cost.usd == pytest.approx(saved, rel=0.01)


@pytest.mark.parametrize(("hibernate", "hours"), [("", 4), ("Sat-Sun", 4), ("Mon 00:00-20:00", 4)])
def test_a_trace_without_hours_off_or_without_hours_on_has_no_such_figure(hibernate: str, hours: int) -> None:
    settings, trace = Settings.from_mapping({"hibernate": hibernate}), a_week(hours)
    assert replay_off_times(trace, settings, ASSUMED, study(trace, settings, ASSUMED)) is None  # type: ignore[arg-type]


def line(name: str, usd: float) -> BillLine:
    return BillLine(name=name, quantity=730, unit="h", usd=usd, usd_after_free=usd, basis="")


def test_the_bill_saves_the_hours_off_of_workers_and_server_and_keeps_the_volumes_of_stopped_machines() -> None:
    settings = Settings.from_mapping({"hibernate": "Sun-Fri 19:00-07:00; Sat-Sun"})
    bill = Bill(
        cpu_percent=None,
        workers=(line("t3.small: instance, spot", 60.0), *standby_monthly_lines(Settings().tariff(), 3)),
        server=(line("t3.medium: instance, on-demand", 38.0), line("t3.medium: 30 GiB gp3 volume", 3.0)),
        control=(),
        fixed_workers=5,
        fixed=Cost(),
        off_hours=off_minutes(settings.hibernate) / 60,
    )
    assert bill.off_hours == 108
    assert bill.off_saves.usd == pytest.approx((60 + 38) * 108 / 168)
