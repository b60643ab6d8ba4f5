"""What moto's EC2 lacks: client tokens, slow instances, Spot interruptions, pools without capacity, failed checks."""

from __future__ import annotations

import base64
import contextlib
import copy
import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol
from unittest import mock

from node_fleet.domain.model.value_class import value_class
from simulator.aws.faults import FaultRule, Faults
from simulator.aws.moto_patches import expect, swapped
from simulator.clock import Handle, VirtualClock

Check = Literal["instance", "system"]
CHECK_FILTERS: dict[str, Check] = {"instance-status.status": "instance", "system-status.status": "system"}
STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
CAPACITY_STATUS = {"InsufficientInstanceCapacity": 500, "InsufficientHostCapacity": 500}
EventSink = Callable[[str, str, Mapping[str, Any], list[str]], object]


class InstanceListener(Protocol):
    """Receives the starts and ends of instances."""

    def instance_started(self, *, instance_id: str, instance_type: str, az: str, market: str, address: str) -> None: ...

    def instance_ended(self, instance_id: str) -> None: ...

    def instance_rebooted(self, instance_id: str, *, heals: bool) -> None: ...


@dataclass(slots=True, kw_only=True)
class Ec2Delays:
    """How long EC2 takes, in seconds."""

    pending_seconds: float = 8.0
    shutting_down_seconds: float = 20.0
    stopping_seconds: float = 20.0
    vanish_seconds: float = 3600.0
    invisible_seconds: float = 0.0


@value_class
class Pool:
    """Where an instance comes from."""

    az: str
    instance_type: str
    market: str


@value_class
class Impairment:
    """A failed status check since a time (epoch); heals: a reboot ends it."""

    check: Check
    since: float
    heals: bool


@dataclass(slots=True, kw_only=True)
class _Launch:
    fingerprint: str
    reservation: Any


class TokenMismatchError(Exception):
    """A client token came again with other parameters."""


class WrongStateError(Exception):
    """An instance is in a state in which it can be neither started nor stopped."""


class Ec2Side:
    """The life of the instances in virtual time. `events` receives what EventBridge would: source, type, detail."""

    def __init__(self, clock: VirtualClock, faults: Faults, *, region: str, account: str) -> None:
        self.delays = Ec2Delays()
        self.page_size: int | None = None
        self.version = 0
        self.listeners: list[InstanceListener] = []
        self.events: list[EventSink] = []
        self.impaired: dict[str, Impairment] = {}
        self.tracked: Callable[[Any], bool] = lambda instance: True
        self._clock = clock
        self._faults = faults
        self._region = region
        self._account = account
        self._launches: dict[str, _Launch] = {}
        self._visible_from: dict[str, float] = {}
        self._started: set[str] = set()
        self.power_listeners: list[Callable[[str, bool], object]] = []
        """Called with the id of an instance that is stopped (False) or, once it runs again, started (True)."""
        self._backend: Callable[[], Any] = _no_backend

    def connect(self, backend: Callable[[], Any]) -> None:
        """Set the place where moto keeps the instances."""
        self._backend = backend

    def instances(self) -> list[Any]:
        """moto's instances in the order of their launch, all states."""
        return [
            instance
            for reservation in list(self._backend().reservations.values())
            for instance in reservation.instances
        ]

    def instance(self, instance_id: str) -> Any:
        for instance in self.instances():
            if instance.id == instance_id:
                return instance
        raise LookupError(f"no instance {instance_id!r}")

    def user_data(self, instance_id: str) -> str:
        """The text of the launch template from which the instance was launched; empty without one."""
        tags = {tag["key"]: tag["value"] for tag in self.instance(instance_id).get_tags()}
        template = tags.get("aws:ec2launchtemplate:id")
        if template is None:
            return ""
        args = {"LaunchTemplateId": template, "Version": tags["aws:ec2launchtemplate:version"]}
        data = self._backend()._get_template_from_args(args).data.get("UserData", "")
        return base64.b64decode(data if isinstance(data, str) else data.as_bytes()).decode()

    def live_ids(self) -> list[str]:
        return [instance.id for instance in self.instances() if instance.state in ("pending", "running")]

    def pool_of(self, parameters: Mapping[str, Any]) -> Pool:
        """The capacity pool that the parameters of RunInstances name."""
        backend = self._backend()
        template = parameters.get("LaunchTemplate")
        data = backend._get_template_from_args(template).data if template else {}
        subnet_id = parameters.get("SubnetId") or _subnet_of(parameters) or data.get("SubnetId") or _subnet_of(data)
        az = parameters.get("Placement", {}).get("AvailabilityZone", "")
        options = parameters.get("InstanceMarketOptions") or data.get("InstanceMarketOptions") or {}
        return Pool(
            az=backend.get_subnet(subnet_id).availability_zone if subnet_id else az,
            instance_type=parameters.get("InstanceType") or data.get("InstanceType", ""),
            market="spot" if options.get("MarketType") == "spot" else "on-demand",
        )

    def dry_pool(
        self,
        *,
        az: str | None = None,
        instance_type: str | None = None,
        market: str | None = None,
        code: str = "InsufficientInstanceCapacity",
        count: int | None = None,
        until: float | None = None,
        when: Callable[[], bool] = lambda: True,
    ) -> FaultRule:
        """Launches, and starts of stopped instances, fail in the pools that match; None matches every value.

        The rule of launches is returned; that of starts counts by itself.
        """

        def fits(pool: Pool) -> bool:
            wanted = ((az, pool.az), (instance_type, pool.instance_type), (market, pool.market))
            return all(want in (None, have) for want, have in wanted) and when()

        def matches(parameters: Mapping[str, Any]) -> bool:
            return fits(self.pool_of(parameters))

        def starts(parameters: Mapping[str, Any]) -> bool:
            found = (self.instance(instance_id) for instance_id in parameters["InstanceIds"])
            return any(
                fits(Pool(az=i.placement.zone, instance_type=i.instance_type, market=i.lifecycle or "on-demand"))
                for i in found
            )

        status = CAPACITY_STATUS.get(code, 400)
        rule = FaultRule(service="ec2", operation="RunInstances", code=code, status=status, count=count, until=until)
        self._faults.inject(replace(rule, operation="StartInstances", when=starts))
        return self._faults.inject(replace(rule, when=matches))

    def launch(self, run: Callable[[], Any], token: str, fingerprint: str) -> Any:
        """RunInstances: the reservation of this token, or a new one whose instances are pending."""
        known = self._launches.get(token)
        if known is not None and self._remembered(known.reservation):
            if known.fingerprint != fingerprint:
                raise TokenMismatchError(token)
            return known.reservation
        reservation = run()
        self._launches[token] = _Launch(fingerprint=fingerprint, reservation=copy.copy(reservation))
        for instance in reservation.instances:
            self._begin(instance)
        return reservation

    def is_visible(self, instance_id: str) -> bool:
        return self._visible_from.get(instance_id, 0.0) <= self._clock.now()

    def is_ending(self, instance: Any) -> bool:
        return instance.state in ("shutting-down", "terminated")

    def ended(self, instance: Any) -> None:
        """Called after moto has terminated an instance: it shuts down first, then is terminated, then vanishes."""
        self._change(instance, "shutting-down")
        self._tell_gone(instance)
        self._clock.at(
            self._clock.now() + self.delays.shutting_down_seconds, lambda: self._change(instance, "terminated")
        )
        self._clock.at(self._clock.now() + self.delays.vanish_seconds, lambda: self._vanish(instance))

    def stop(self, instance: Any) -> None:
        """StopInstances: the machine shuts down, and its volume and address stay. Again: changes nothing."""
        if instance.state in ("stopping", "stopped"):
            return
        if instance.state not in ("pending", "running"):
            raise WrongStateError(instance.id)
        self._change(instance, "stopping")
        self._tell_gone(instance)
        for listener in self.power_listeners:
            listener(instance.id, False)
        self._clock.at(self._clock.now() + self.delays.stopping_seconds, lambda: self._end_of_stop(instance))

    def _end_of_stop(self, instance: Any) -> None:
        if instance.state == "stopping":
            self._change(instance, "stopped")

    def start(self, instance: Any) -> None:
        """StartInstances: the same machine boots again from its volume. Again: changes nothing."""
        if instance.state in ("pending", "running"):
            return
        if instance.state != "stopped":
            raise WrongStateError(instance.id)
        instance.launch_time = dt.datetime.fromtimestamp(self._clock.now(), dt.UTC).replace(tzinfo=None)
        self._change(instance, "pending")
        self._clock.at(self._clock.now() + self.delays.pending_seconds, lambda: self._run_again(instance))

    def _run_again(self, instance: Any) -> None:
        if instance.state == "pending":
            self._run(instance)
            for listener in self.power_listeners:
                listener(instance.id, True)

    def warn_spot(self, instance_id: str, *, notice_seconds: float = 120.0, reclaim: bool = True) -> Handle | None:
        """AWS sends a notice and reclaims the Spot instance when it ends; cancelling the handle keeps the instance."""
        at = self._clock.now() + notice_seconds
        detail = {"instance-id": instance_id, "instance-action": "terminate"}
        self._emit("EC2 Spot Instance Interruption Warning", detail, instance_id)
        return self._clock.at(at, lambda: self.reclaim(instance_id)) if reclaim else None

    def recommend_rebalance(self, instance_id: str) -> None:
        self._emit("EC2 Instance Rebalance Recommendation", {"instance-id": instance_id}, instance_id)

    def schedule_change(self, instance_id: str, *, not_before: float) -> None:
        """AWS Health announces maintenance that will end the instance."""
        code = "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"
        detail = {
            "eventArn": f"arn:aws:health:{self._region}::event/EC2/{code}/{code}_{instance_id}",
            "service": "EC2",
            "eventTypeCode": code,
            "statusCode": "upcoming",
            "eventTypeCategory": "scheduledChange",
            "startTime": dt.datetime.fromtimestamp(not_before, tz=dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "affectedEntities": [{"entityValue": instance_id}],
        }
        for sink in self.events:
            sink("aws.health", "AWS Health Event", detail, [instance_id])

    def impair(self, instance_id: str, *, check: Check = "instance", heals: bool = True) -> None:
        """A status check of the instance fails from now on; a reboot ends it where it heals."""
        self.impaired[instance_id] = Impairment(check=check, since=self._clock.now(), heals=heals)
        self._changed()

    def heal(self, instance_id: str) -> None:
        """The status checks of the instance pass again."""
        self.impaired.pop(instance_id, None)
        self._changed()

    def status_of(self, instance: Any, check: Check) -> dict[str, Any]:
        """The summary of one status check, as DescribeInstanceStatus shows it."""
        if instance.state != "running":
            return {"Status": "not-applicable"}
        found = self.impaired.get(instance.id)
        if found is None or found.check != check:
            return {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
        since = dt.datetime.fromtimestamp(found.since, tz=dt.UTC)
        return {
            "Status": "impaired",
            "Details": [{"Name": "reachability", "Status": "failed", "ImpairedSince": since}],
        }

    def reboot(self, instance: Any) -> None:
        """EC2 ignores the reboot of an instance that has ended."""
        if self.is_ending(instance):
            return
        found = self.impaired.get(instance.id)
        heals = found is None or found.heals
        if heals:
            self.impaired.pop(instance.id, None)
        self._changed()
        for listener in self.listeners if instance.id in self._started else ():
            listener.instance_rebooted(instance.id, heals=heals)

    def reclaim(self, instance_id: str, *, reason: str = "") -> None:
        """AWS reclaims an instance, with that state reason. Changes nothing when the instance has ended."""
        instance = next((found for found in self.instances() if found.id == instance_id), None)
        if instance is None or self.is_ending(instance):
            return
        instance.terminate()
        code = reason or ("Server.SpotInstanceTermination" if instance.lifecycle == "spot" else "Server.InternalError")
        instance.state_reason.code = code
        instance.state_reason.message = f"{code}: the instance was taken away"
        self.version += 1

    def _begin(self, instance: Any) -> None:
        if _spot_by_template(self._backend(), instance):
            instance.lifecycle = "spot"
        self._visible_from[instance.id] = self._clock.now() + self.delays.invisible_seconds
        self._clock.at(self._visible_from[instance.id], self._changed)
        self._change(instance, "pending")
        self._clock.at(self._clock.now() + self.delays.pending_seconds, lambda: self._run(instance))

    def _run(self, instance: Any) -> None:
        if instance.state != "pending":
            return
        self._change(instance, "running")
        if self.tracked(instance):
            self._started.add(instance.id)
            for listener in self.listeners:
                listener.instance_started(
                    instance_id=instance.id,
                    instance_type=instance.instance_type,
                    az=instance.placement.zone,
                    market=instance.lifecycle or "on-demand",
                    address=instance.private_ip,
                )

    def _tell_gone(self, instance: Any) -> None:
        if instance.id in self._started:
            self._started.discard(instance.id)
            for listener in self.listeners:
                listener.instance_ended(instance.id)

    def _changed(self) -> None:
        self.version += 1

    def _change(self, instance: Any, state: str) -> None:
        self._changed()
        instance._state.name = state
        instance._state.code = STATE_CODES[state]
        self._emit("EC2 Instance State-change Notification", {"instance-id": instance.id, "state": state}, instance.id)

    def _vanish(self, instance: Any) -> None:
        self._changed()
        reservations = self._backend().reservations
        for key, reservation in list(reservations.items()):
            reservation.instances = [other for other in reservation.instances if other.id != instance.id]
            if not reservation.instances:
                del reservations[key]
        self._visible_from.pop(instance.id, None)
        self._launches = {
            token: launch for token, launch in self._launches.items() if self._remembered(launch.reservation)
        }

    def _remembered(self, reservation: Any) -> bool:
        return reservation.id in self._backend().reservations

    def _emit(self, detail_type: str, detail: Mapping[str, Any], instance_id: str) -> None:
        arn = f"arn:aws:ec2:{self._region}:{self._account}:instance/{instance_id}"
        for sink in self.events:
            sink("aws.ec2", detail_type, detail, [arn])


def _no_backend() -> Any:
    raise LookupError("EC2 is not connected: use it inside `with Cloud(...)`")


def _subnet_of(parameters: Mapping[str, Any]) -> str | None:
    interfaces = parameters.get("NetworkInterfaces") or [{}]
    subnet: str | None = interfaces[0].get("SubnetId")
    return subnet


def _spot_by_template(backend: Any, instance: Any) -> bool:
    tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
    template = tags.get("aws:ec2launchtemplate:id")
    if template is None or instance.lifecycle == "spot":
        return False
    args = {"LaunchTemplateId": template, "Version": tags["aws:ec2launchtemplate:version"]}
    options = backend._get_template_from_args(args).data.get("InstanceMarketOptions") or {}
    return bool(options.get("MarketType") == "spot")


@contextlib.contextmanager
def slow_instances(side: Ec2Side, *, account: str, region: str) -> Iterator[None]:
    """EC2 with client tokens, instances that take their time, and the filters that moto lacks."""
    from moto.ec2 import ec2_backends
    from moto.ec2 import utils as ec2_utils
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.models import EC2Backend
    from moto.ec2.models import instances as models
    from moto.ec2.responses.instances import InstanceResponse

    run = expect(
        EC2Backend, "run_instances", "self", "image_id", "count", "user_data", "security_group_names", "kwargs"
    )
    terminate = expect(models.Instance, "terminate", "self")
    reservations = expect(models.InstanceBackend, "all_reservations", "self", "filters")
    describe = expect(InstanceResponse, "describe_instances", "self")
    expect(ec2_backends[account][region], "reservations")
    side.connect(lambda: ec2_backends[account][region])

    def run_instances(this: Any, *args: Any, **kwargs: Any) -> Any:
        token = kwargs.get("client_token", "")
        fingerprint = repr((args, sorted((key, repr(value)) for key, value in kwargs.items())))
        try:
            return side.launch(lambda: run(this, *args, **kwargs), token, fingerprint)
        except TokenMismatchError:
            text = "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
            raise EC2ClientError("IdempotentParameterMismatch", text) from None

    def end(this: Any) -> Any:
        if side.is_ending(this):
            return copy.copy(this._state)
        previous = terminate(this)
        side.ended(this)
        return previous

    def all_reservations(this: Any, filters: Any = None) -> list[Any]:
        found: list[Any] = reservations(this, filters)
        for reservation in found:
            reservation.instances = [one for one in reservation.instances if side.is_visible(one.id)]
        return [reservation for reservation in found if reservation.instances]

    def describe_instances(this: Any) -> Any:
        if side.page_size is not None:
            this._get_param = _smaller_pages(this._get_param, side.page_size)
        return describe(this)

    more_filters = {"instance-lifecycle": "lifecycle", "client-token": "client_token"}
    expect(ec2_utils, "passes_filter_dict", "instance", "filter_dict")
    with (
        mock.patch.dict(expect(ec2_utils, "filter_dict_attribute_mapping"), more_filters),
        swapped(models.InstanceBackend, "run_instances", run_instances),
        swapped(models.Instance, "terminate", end),
        swapped(models.InstanceBackend, "all_reservations", all_reservations),
        swapped(InstanceResponse, "describe_instances", describe_instances),
    ):
        yield


@contextlib.contextmanager
def slow_stops(side: Ec2Side) -> Iterator[None]:
    """EC2 whose instances take their time to stop and to start again, and refuse both in a wrong state."""
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.models import instances as models

    def changed(change: Callable[[Any], None]) -> Callable[[Any], Any]:
        def change_state(this: Any) -> Any:
            previous = copy.copy(this._state)
            try:
                change(this)
            except WrongStateError:
                text = f"The instance '{this.id}' is not in a state from which it can be started or stopped."
                raise EC2ClientError("IncorrectInstanceState", text) from None
            return previous

        return change_state

    with (
        swapped(models.Instance, "stop", changed(side.stop), "self"),
        swapped(models.Instance, "start", changed(side.start), "self"),
    ):
        yield


@contextlib.contextmanager
def status_checks(side: Ec2Side) -> Iterator[None]:
    """EC2 with status checks that fail, and reboots that reach the machine."""
    from moto.ec2.models import instances as models

    statuses = expect(
        models.InstanceBackend, "describe_instance_status", "self", "instance_ids", "include_all_instances", "filters"
    )

    def describe_instance_status(this: Any, instance_ids: Any, include_all_instances: Any, filters: Any) -> list[Any]:
        found: list[Any] = statuses(this, instance_ids, include_all_instances, filters)
        for wanted in filters or ():
            check: Check | None = CHECK_FILTERS.get(wanted["name"])
            if check:
                found = [one for one in found if side.status_of(one, check)["Status"] in wanted["values"]]
        return found

    def reboot(this: Any) -> None:
        side.reboot(this)

    with (
        swapped(models.InstanceBackend, "describe_instance_status", describe_instance_status),
        swapped(models.Instance, "reboot", reboot, "self"),
        swapped(models.Instance, "instance_status", property(lambda this: side.status_of(this, "instance"))),
        swapped(models.Instance, "system_status", property(lambda this: side.status_of(this, "system"))),
    ):
        yield


def _smaller_pages(ask: Callable[..., Any], size: int) -> Callable[..., Any]:
    def get_param(name: str, if_none: Any = None) -> Any:
        value = ask(name, if_none)
        return min(int(value), size) if name == "MaxResults" else value

    return get_param
