"""Volumes that end with their worker: read from the output of a command, and one critical alert."""

from __future__ import annotations

import pytest

from node_fleet.domain.notify.message import level_of
from node_fleet.domain.scale_down.lost_volumes import LostVolume, lost_volumes_alert, parse_lost_volumes

WORKER = "i-00000000000000001"


def volumes(count: int) -> tuple[LostVolume, ...]:
    return tuple(LostVolume(claim=f"shop/data-{n}", volume=f"pvc-{n}", pod="-") for n in range(count))


def test_volumes_are_read_from_the_lines_of_a_command_between_its_other_lines() -> None:
    output = "node/x cordoned\nvolume shop/data pvc-1 shop/db-0\nvolume shop/b pvc-2 -\nvolume cut\nresult: drained x\n"
    assert parse_lost_volumes(output) == (
        LostVolume(claim="shop/data", volume="pvc-1", pod="shop/db-0"),
        LostVolume(claim="shop/b", volume="pvc-2", pod="-"),
    )


def test_the_alert_is_critical_and_names_claim_volume_and_last_pod() -> None:
    [alert] = lost_volumes_alert(WORKER, [LostVolume(claim="shop/data", volume="pvc-1", pod="shop/db-0")])
    assert (alert.kind, alert.is_critical) == (f"volumes_lost:{WORKER}", True)
    assert "claim shop/data (volume pvc-1, last pod shop/db-0)" in alert.text
    assert "kubectl -n shop delete pvc data" in alert.text


@pytest.mark.parametrize(("count", "named", "more"), [(1, 1, ""), (5, 5, ""), (6, 5, " and 1 more")])
def test_one_alert_names_five_volumes_and_counts_the_others(count: int, named: int, more: str) -> None:
    [alert] = lost_volumes_alert(WORKER, volumes(count))
    assert alert.text.count("last pod unknown") == named
    assert (" more" in alert.text, more in alert.text) == (bool(more), True)


def test_a_worker_without_such_a_volume_causes_no_alert() -> None:
    assert lost_volumes_alert(WORKER, ()) == ()


def test_a_critical_alert_makes_the_message_an_error_and_another_does_not() -> None:
    critical = lost_volumes_alert(WORKER, volumes(1))
    assert (level_of(critical, "success"), level_of((), "success")) == ("error", "success")
