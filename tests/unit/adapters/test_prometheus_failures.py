"""PrometheusReader: every failure of Prometheus becomes one sentence, within the time of the step."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from node_fleet.adapters.prometheus import queries
from node_fleet.adapters.secrets import SecretError
from node_fleet.domain.model.errors import MetricsUnavailableError, ServerNotFoundError
from node_fleet.settings import Settings
from tests.support.fake_prometheus import NOW, QUIET_REQUESTS, Bench, bench, reply, vector


def failure(found: Bench) -> str:
    with pytest.raises(MetricsUnavailableError) as caught:
        found.reader.read(NOW)
    return str(caught.value)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (requests.ConnectionError("refused"), "cannot connect"),
        (reply(503, "Service Unavailable", "text/plain"), "HTTP 503 Service Unavailable"),
    ],
)
def test_an_unreachable_or_starting_prometheus_is_tried_three_times_and_named(answer: Any, reason: str) -> None:
    found = bench()
    found.session.script = [answer] * 3
    assert failure(found) == f"Prometheus at http://10.0.0.1:30090 gives no answer to query nodes: {reason}"
    assert len(found.session.forms) == 3
    assert found.clock.slept == [1, 2]


def test_a_failure_that_passes_is_not_noticed() -> None:
    found = bench()
    found.session.script = [requests.ConnectionError("reset"), reply(502, "Bad Gateway", "text/plain")]
    assert found.reader.read(NOW).cpu_percent == 50


def test_each_request_waits_ten_seconds_at_most_and_all_of_them_25() -> None:
    found = bench()
    found.session.script = [requests.Timeout("slow")] * 3
    assert failure(found) == "Prometheus at http://10.0.0.1:30090 gives no answer to query nodes: no answer within 2 s"
    assert found.session.timeouts == [10, 10, 2]
    assert found.clock.at - NOW == 25


def test_slow_answers_end_when_the_budget_of_the_reading_is_used_up() -> None:
    found = bench()
    found.session.seconds_per_request = 9
    assert failure(found).endswith("query pending: 25 s for all queries are over")
    assert len(found.session.forms) == 3


def test_a_prometheus_that_used_up_a_budget_is_left_alone_for_20_seconds_so_that_one_step_waits_once() -> None:
    found = bench()
    found.session.script = [requests.Timeout("slow")] * 3
    sentence = failure(found)
    asked, found.clock.at = len(found.session.forms), found.clock.at + 19
    with pytest.raises(MetricsUnavailableError) as caught:
        found.reader.pending(NOW)
    assert str(caught.value) == sentence
    assert len(found.session.forms) == asked
    found.clock.at += 1
    assert found.reader.pending(NOW) == ()


@pytest.mark.parametrize("url", ["metrics.example.com:9090", "http://", "http://[::1"])
def test_a_url_that_is_none_is_named_with_its_setting(url: str) -> None:
    sentence = failure(Bench(settings=Settings(prometheus_url=url)))
    assert sentence == f"prometheus_url={url.rstrip('/')} is not a URL, expected http://HOST:PORT or https://HOST/PATH"


def test_the_budget_is_fresh_for_each_reading() -> None:
    found = bench()
    found.session.seconds_per_request = 4
    for _ in range(3):
        assert found.reader.read(NOW).cpu_percent == 50


def test_a_wrong_password_names_the_secret_after_reading_it_afresh() -> None:
    found = Bench(secret="wrong", remembered="wrong")
    assert failure(found) == (
        "Prometheus at http://10.0.0.1:30090 refuses the user name and password of secret"
        " node-fleet/prometheus-auth (HTTP 401)"
    )
    assert len(found.session.forms) == 2


def test_a_password_that_was_changed_is_found_by_reading_the_secret_again() -> None:
    found = bench()
    found.remembered = "old"
    assert found.reader.read(NOW).cpu_percent == 50
    assert len(found.session.forms) == QUIET_REQUESTS + 1


@pytest.mark.parametrize("password", ["größer", "€"])
def test_a_password_of_any_letters_is_sent_as_the_server_hashes_it(password: str) -> None:
    found = bench()
    found.remembered = found.session.password = password
    assert found.reader.read(NOW).cpu_percent == 50


def test_html_instead_of_json_says_what_came() -> None:
    found = bench()
    found.session.script = [reply(302, "<html>\n <body>Sign   in</body></html>", "text/html; charset=utf-8")]
    assert failure(found) == (
        "http://10.0.0.1:30090 does not answer as Prometheus does: HTTP 302, text/html,"
        " beginning '<html> <body>Sign in</body></html>'; expected JSON"
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"status":"success"}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"many"]}]}}',
    ],
)
def test_json_of_another_shape_names_the_query(text: str) -> None:
    found = bench()
    found.session.script = [reply(200, text)]
    assert failure(found) == "Prometheus' answer to query nodes is not a vector of numbers"


def test_a_refused_batch_is_asked_part_by_part_so_that_the_error_names_the_part() -> None:
    found = bench()
    found.session.refuses = {queries.NODE_TAINT}
    assert failure(found) == "Prometheus refuses query nodes.taint: bad_data: parse error"


def test_a_batch_that_is_refused_only_as_a_whole_still_gives_its_figures() -> None:
    found = bench()
    found.session.refuses = {'"figure", "cores"'}
    assert found.reader.read(NOW).cpu_percent == 50


def test_the_address_is_looked_up_once_and_again_after_a_failure() -> None:
    found = bench()
    found.addresses = ["10.0.0.1", "10.0.0.9"]
    found.reader.read(NOW)
    found.reader.read(NOW)
    assert found.looked_up == 1
    found.session.script = [requests.ConnectionError("gone")] * 3
    failure(found)
    found.reader.read(NOW)
    assert found.session.urls[-1] == "http://10.0.0.9:30090/api/v1/query"


def test_a_configured_url_needs_no_server() -> None:
    found = Bench(settings=Settings(prometheus_url="https://metrics.example.com/prom/"))
    found.session.script = [vector([])]
    found.reader.pending(NOW)
    assert found.session.urls == ["https://metrics.example.com/prom/api/v1/query"]
    assert found.looked_up == 0


def test_a_server_that_cannot_be_found_is_a_failure_of_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench()

    def lost() -> str:
        raise ServerNotFoundError("no running instance has the tag Role=k3s-master")

    monkeypatch.setattr(found.reader._client, "_address", lost)
    assert failure(found) == "the address of Prometheus is unknown: no running instance has the tag Role=k3s-master"


def test_a_secret_that_cannot_be_read_is_a_failure_of_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench()

    def locked(fresh: bool) -> tuple[str, str]:
        raise SecretError("secret x cannot be read: this function's role may not read it")

    monkeypatch.setattr(found.reader._client, "_credentials", locked)
    assert (
        failure(found) == "Prometheus cannot be queried: secret x cannot be read: this function's role may not read it"
    )
