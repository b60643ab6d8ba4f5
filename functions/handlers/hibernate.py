"""Hibernate: one step on the way off or on: checks what forbids it, ends the workers, stops or starts the server.

Each run does one step, from what the state item remembers: a run that dies is continued by the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from node_fleet.domain.model.errors import (
    Ec2Error,
    MetricsUnavailableError,
    ServerNotFoundError,
    ServerUnreachableError,
)
from node_fleet.domain.model.fleet_state import FleetState, times_of
from node_fleet.domain.model.hibernation import (
    ALERT_SECONDS,
    CHECK_SECONDS,
    KEPT_ALERT_SECONDS,
    REPEAT_SECONDS,
    SETTLE_SECONDS,
    STOP_LIMIT_SECONDS,
    Hibernation,
    Order,
    Times,
    next_step,
    utc_minute,
)
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scale_down.drain import alert_again, alert_once
from node_fleet.domain.scale_down.hibernation import (
    drainable,
    ending,
    forgotten,
    guard_in,
    metric_guard,
    protected_guard,
    switch_off,
)
from node_fleet.logs import logger
from node_fleet.payload import add_alerts, put, take
from node_fleet.services import Services, load_services

DOCUMENT = "HibernateServer"
BACKUP_SECONDS = 600


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `hibernate`: "on" (the run scales as usual), "drain" or "end" (its `operation` follows), or "waiting"."""
    services = load_services()
    run = take(event, "run", Run)
    state, now = services.state.renew(run), services.clock.now()
    times = times_of(services.settings, state)
    step = next_step(state.hibernation, times, now)
    turn = Turn(services=services, run=run, state=state, times=times, now=now, event=event, known=state.hibernation)
    steps = {"on": turn.stay_on, "drain": turn.drain, "check": turn.check, "wake": turn.wake}
    try:
        answer = steps[step]()
    except (ServerUnreachableError, ServerNotFoundError, Ec2Error) as error:
        answer = turn.failed(str(error), is_waking=step == "wake" or turn.known.phase == "off")
    logger.info("hibernate", step=step, **answer["hibernate"])
    return answer


@dataclass(slots=True, kw_only=True)
class Turn:
    """One step of one run. known: what the state item remembers, which the step changes."""

    services: Services
    run: Run
    state: FleetState
    times: Times
    now: int
    event: dict[str, Any]
    known: Hibernation

    def stay_on(self) -> dict[str, Any]:
        """The way off ends: the time is over, or an order came. A server that someone stopped meanwhile is started."""
        if self._is_stopped():
            return self.wake()
        self._save("on", "", kept_since=0)
        return self._answer("on", "the fleet is to be on")

    def drain(self) -> dict[str, Any]:
        """Drain workers until the limit, then end the rest, then stop the server."""
        settings = self.services.settings
        instances = self.services.ec2.instances()
        is_copied = bool(self.known.backup_id) and not instances  # K3s does not answer meanwhile
        if not is_copied and (guard := self._guard()):
            return self._kept_on(guard)
        if self.known.phase != "draining":
            self._save("draining", "its workers are drained", kept_since=0)
        spent = self.now - self.known.since
        if not instances:
            return self._give_up(spent) or self._stop()
        is_over = spent >= settings.hibernate_drain_seconds
        if is_over and settings.hibernate_drain_seconds and settings.hibernate_at_limit == "stay-on":
            return self._stays(f"{count_of(len(instances), 'worker')} could not be drained in {spent // 60} min")
        return self._give_up(spent) or self._begin(instances, is_over=is_over)

    def check(self) -> dict[str, Any]:
        """The fleet is off, or the server is being stopped."""
        before, machine = self.known, self.services.ec2.server_machine()
        on_again = self.times.on_again(self.now)
        if machine.state == "stopped":
            idle = min(self.now + CHECK_SECONDS, on_again - self.times.lead_seconds)
            detail = f"it is on again at {utc_minute(on_again)}"
            self._save("off", detail, idle_until=idle)
            if before.phase == "off":
                return self._answer("waiting", detail)
            note = f"the server {machine.instance_id} is stopped and no worker runs; {detail}"
            answer = self._answer("waiting", f"the fleet is off; {detail}", notes=[note])
            return put(answer, memory=forgotten(self._memory))
        if before.phase == "off" and machine.state in ("pending", "running"):
            order = self._on_until_the_end("a start of the server by hand")
            detail = f"on until {utc_minute(on_again)}, ordered by {order.by}"
            self._save("waking", detail, order=order, idle_until=0)
            text = f"someone started the server {machine.instance_id} by hand, so the fleet stays on until "
            return self._answer("waiting", before.detail, notes=[text + utc_minute(on_again)])
        if before.phase == "stopping" and self.now - before.since > STOP_LIMIT_SECONDS:
            return self._stays(f"the server {machine.instance_id} is {machine.state} and does not stop", phase="waking")
        if machine.state == "running":
            self.services.ec2.stop(machine.instance_id)
        return self._answer("waiting", f"the server is {machine.state}")

    def wake(self) -> dict[str, Any]:
        """Start the server, and let the run scale once its API and Prometheus answer."""
        if self.known.phase != "waking":
            self._save("waking", "the server is started", idle_until=0)
        machine, spent = self.services.ec2.server_machine(), self.now - self.known.since
        if machine.state == "stopped":
            self.services.ec2.start(machine.instance_id)
        problem = self._unhealthy(spent) if machine.state == "running" else f"it is {machine.state}"
        if not problem:
            # A short start shortens the lead: without an order the fleet would be switched off again before the end.
            is_early = self.times.is_off(self.now) and not self.times.stays_off(self.now)
            order = self._on_until_the_end("node-fleet") if is_early else None
            self._save("on", "", order=order, wake_seconds=spent)
            note = f"the server {machine.instance_id} is healthy {spent} s after it was started; the workers follow"
            return self._answer("on", note, notes=[note])
        text = f"the server {machine.instance_id} is not healthy {spent} s after it was to start: {problem}"
        return self.failed(text, is_waking=True) if spent >= ALERT_SECONDS else self._answer("waiting", text)

    def failed(self, problem: str, *, is_waking: bool) -> dict[str, Any]:
        """The answer with an alert; the next run tries again."""
        doing = "switched on" if is_waking else "switched off"
        alert = Alert(
            kind="wake_failed" if is_waking else "hibernate_failed",
            text=f"the fleet cannot be {doing}: {problem}. The next run tries again",
        )
        return self._answer("waiting", problem, alert=alert)

    def _guard(self) -> str:
        """What forbids to switch the fleet off; empty when nothing does. What is unknown forbids it."""
        services, settings = self.services, self.services.settings
        if held := protected_guard(self.state, self.now):
            return held
        if settings.hibernate_unless:
            # Prometheus, or what it measures, may run on a worker that is drained: the answer before it holds then.
            values: tuple[float, ...] = (0.0,) if self.known.phase == "draining" else ()
            try:
                values = services.prometheus.values("hibernate_unless", settings.hibernate_unless, self.now) or values
            except MetricsUnavailableError as error:
                if not values:
                    return f"hibernate_unless has no answer: {error}"
            if high := metric_guard(settings.hibernate_unless, values):
                return high
        try:
            services.ec2.server_machine()  # a server that cannot be found while it is stopped could not be started
            return guard_in(
                services.server.run(DOCUMENT, {"HibernateMode": "check"}), with_jobs=settings.hibernate_jobs
            )
        except (ServerUnreachableError, ServerNotFoundError, Ec2Error) as error:
            return str(error)

    def _kept_on(self, guard: str) -> dict[str, Any]:
        """A guard forbids it now: the fleet is scaled as usual, and every run asks again. Reported after an hour."""
        since = self.known.kept_since or self.now
        self._save("on", guard, kept_since=since)
        hours = (self.now - since) / 3600
        if self.now - since < KEPT_ALERT_SECONDS:
            return self._answer("on", guard)
        text = f"the fleet was to be off {hours:.0f} h ago and stays on: {guard}. Every run checks again"
        return self._answer("on", guard, alert=Alert(kind="hibernate_kept_on", text=text))

    def _begin(self, instances: tuple[Instance, ...], *, is_over: bool) -> dict[str, Any]:
        """The operation that drains workers, or ends all that are left."""
        inspection = self.services.server.inspect()
        if not inspection.known:
            return self._answer("waiting", inspection.detail)
        drained = () if is_over else drainable(inspection, instances, self.state, self._memory, self.now)
        targets = ending(instances, inspection, self.now) if is_over else drained
        if not targets:
            return self._answer("waiting", f"{count_of(len(instances), 'worker')} cannot be drained now")
        reason, drains = "the fleet is switched off", self.services.settings.hibernate_drain_seconds > 0
        operation = switch_off(
            targets,
            operation_id=f"off-{self.run.fence}-{self.now}",
            execution_id=self.run.execution_id,
            now=self.now,
            workers=len(instances),
            reason=f"{reason}: not drained in time" if is_over and drains else reason,
        )
        self.services.state.save_operation(self.run, operation)
        return put(self._answer("end" if is_over else "drain", operation.reason), operation=operation)

    @property
    def _memory(self) -> Memory:
        memory: Memory = take(self.event, "memory", Memory, default=self.state.memory)
        return memory

    def _stop(self) -> dict[str, Any]:
        """No worker is left: copy the datastore, then stop the server. Each is recorded before it is done."""
        server = self.services.server
        if not self.known.backup_id:
            self.services.state.renew(self.run)
            sent = {"HibernateMode": "backup", "ExecutionTimeoutSeconds": str(BACKUP_SECONDS)}
            self._save("draining", "the datastore is copied", backup_id=server.send(DOCUMENT, sent))
        result = server.wait(self.known.backup_id)
        if not result.final:
            return self._answer("waiting", "the datastore is copied")
        if not result.succeeded or result.word not in ("kept", "external"):
            self._save("draining", "the datastore was not copied", backup_id="")
            return self.failed(f"the datastore was not copied: {result.answer}", is_waking=False)
        machine = self.services.ec2.server_machine()
        self._save("stopping", "the server is stopped")
        self.services.ec2.stop(machine.instance_id)
        return self._answer("waiting", f"the server {machine.instance_id} is stopped")

    def _give_up(self, spent: int) -> dict[str, Any] | None:
        limit = self.services.settings.hibernate_drain_seconds + STOP_LIMIT_SECONDS
        return self._stays(f"it was not off after {spent // 60} min") if spent > limit else None

    def _stays(self, problem: str, phase: Any = "on") -> dict[str, Any]:
        """The fleet stays on until the end of this time off: the same would fail again."""
        order = self._on_until_the_end("node-fleet")
        detail = f"{problem}; it stays on until {utc_minute(order.until)}"
        self._save(phase, detail, order=order)
        alert = Alert(kind="hibernate_failed", text=f"the fleet was not switched off: {detail}")
        return self._answer("on" if phase == "on" else "waiting", detail, alert=alert)

    def _on_until_the_end(self, by: str) -> Order:
        """The order that keeps the fleet on until the end of this time off."""
        return Order(kind="wake", by=by, since=self.now, until=self.times.on_again(self.now))

    def _is_stopped(self) -> bool:
        """Whether the server is stopped; one that cannot be found keeps no fleet from being scaled."""
        try:
            return self.services.ec2.server_machine().state == "stopped"
        except (ServerNotFoundError, Ec2Error):
            return False

    def _unhealthy(self, spent: int) -> str:
        """Why workers cannot join yet; Prometheus is waited for only so long, because it may run on a worker.

        EC2 may still show a server as running that was asked to stop a moment ago.
        """
        if spent < SETTLE_SECONDS:
            return "EC2 may not show yet that it stops"
        try:
            inspection = self.services.server.inspect()
        except ServerUnreachableError as error:  # its SSM agent starts later than the instance
            return str(error)
        if not inspection.known:
            return inspection.detail
        try:
            self.services.prometheus.nodes(self.now)
        except MetricsUnavailableError as error:
            return str(error) if spent < ALERT_SECONDS else ""
        return ""

    def _save(self, phase: Any, detail: str, *, order: Order | None = None, **changes: Any) -> None:
        """Record the step; unchanged values are not written again."""
        before, seen = self.known, order or self.state.hibernate_order
        since = before.since if before.phase == phase else self.now
        changes |= {"phase": phase, "since": since, "detail": detail, "order_seen": seen.since if seen else 0}
        if phase != "draining":
            changes["backup_id"] = ""  # a copy is of one way off: changes follow it
        self.known = replace(before, **changes)
        if self.known != before:
            self.services.state.save_hibernation(self.run, self.known, order)

    def _answer(
        self, status: str, detail: str, *, notes: list[str] | None = None, alert: Alert | None = None
    ) -> dict[str, Any]:
        """The payload; an alert whose cause was known within the quiet time is repeated for a failed wake-up only."""
        event = self.event
        alerts: tuple[Alert, ...] = ()
        if alert is not None and alert.kind == "wake_failed":
            memory, alerts = alert_again(self._memory, alert, self.now, REPEAT_SECONDS)
            event = put(event, memory=memory)
        elif alert is not None:
            quiet = self.services.settings.alert_quiet_seconds
            memory, alerts = alert_once(self._memory, alert, self.now, quiet)
            event = put(event, memory=memory)
        event = add_alerts(event, notes=[*(notes or ()), *(one.text for one in alerts)], alerts=alerts)
        notify = bool(event["notes"] or event["alerts"]) and status != "on"
        return put(event, hibernate={"status": status, "detail": detail, "notify": notify})
