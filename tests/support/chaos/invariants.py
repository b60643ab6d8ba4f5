"""What must hold at every instant, whatever goes wrong: judged from raw items, EC2 and the cluster alone.

Nothing here uses the product's own reading of its state, so a mistake there cannot hide itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from node_fleet.payload import table_rows
from simulator.aws.recorder import AwsCall
from simulator.cluster.api.store import Change
from simulator.cluster.machines import machine_type
from simulator.cluster.objects import condition_is_true, is_terminating
from tests.support.chaos.budgets import DrawnRules, disrupted
from tests.support.chaos.fleet import Fleet, acting
from tests.support.chaos.task_states import HOLDERS

LIVE = ("pending", "running")
ENDING = ("TerminateInstances", "StopInstances")
CORDONED_BY = "node-fleet.io/cordoned-by"
LOOK_SECONDS = 5.0
LOOKS_ONLY = ("InspectNodes", "ListPendingPods", "CheckNode", "RecordEvents")
"""Documents that change no worker: they read, or write Events and the status, as a message does that needs no lock."""
FORGET = "ForgetNode"
SINGLE = "only-one"
"""The application of one replica that asks for a second pod before a drain."""

ONE_HOLDER = "at most one lease holder"
ONLY_THE_HOLDER_ACTS = "only the holder changes anything"
NOBODY_FORGOTTEN = "every launched instance is joined, reaped or adopted in time"
DRAINED_FIRST = "no worker is terminated that was not drained empty"
WORDS_END_NO_WORKER = "no worker is terminated undrained because of what another one states"
REBOOTED_ONCE = "no worker is rebooted twice, while it is protected, or before it is drained empty"
BUDGETS_KEPT = "no drain begins that a disruption budget or a removal window forbids"
ONLY_ONE_STAYS = "an only replica that asks for a second pod first is available while its worker runs"
PROTECTED_STAYS = "no worker is terminated after an operator protected it"
NEVER_ABOVE_MAX = "never above max"
NEVER_ABOVE_VCPU = "never above max_vcpu"
NEVER_BELOW_MIN = "never taken below min"
NEVER_BELOW_ORDER = "no termination begins that takes the fleet below what an operator ordered for a time"
CORDONS_END = "no cordon outlives its operation by more than one"
LOCK_GETS_FREE = "the lock is free or owned by a running execution in time"
OFF_BY_ORDER = "workers end for a time off, and the server stops after the last of them, only while it is ordered"
HONEST_STAMP = "the cooldown stamp moves only after a success"
NOTHING_LOST = "history and events are never lost"
COMES_HOME = "the fleet ends where a fault-free run would have put it"
INVARIANTS = (
    ONE_HOLDER, ONLY_THE_HOLDER_ACTS, NOBODY_FORGOTTEN, DRAINED_FIRST, WORDS_END_NO_WORKER, REBOOTED_ONCE,
    BUDGETS_KEPT, ONLY_ONE_STAYS, PROTECTED_STAYS, OFF_BY_ORDER, NEVER_ABOVE_MAX, NEVER_ABOVE_VCPU, NEVER_BELOW_MIN,
    NEVER_BELOW_ORDER, CORDONS_END, LOCK_GETS_FREE, HONEST_STAMP, NOTHING_LOST, COMES_HOME,
)  # fmt: skip


@dataclass(slots=True)
class Watch:
    """Looks at each change and every few seconds; `broken` holds one sentence for each thing that must not be."""

    fleet: Fleet
    broken: list[str] = field(default_factory=list)
    disturbed_until: float = 0.0
    item: dict[str, Any] = field(default_factory=dict)
    launched: dict[str, float] = field(default_factory=dict)
    was_usable: set[str] = field(default_factory=set)
    terminated: dict[str, float] = field(default_factory=dict)
    rebooted: set[str] = field(default_factory=set)
    adopted: set[str] = field(default_factory=set)
    noticed: set[str] = field(default_factory=set)
    speaks_of_itself: set[str] = field(default_factory=set)
    """Workers that state something absurd of themselves: only the others are under the protection of the rule."""
    rules: DrawnRules = field(default_factory=DrawnRules)
    rules_since: float = 0.0
    max_vcpu: int = 0
    ordered_off: tuple[float, float] = (0.0, 0.0)
    """From when until when an operator has ordered the fleet off, the last time."""
    closed: list[str] = field(default_factory=list)
    written: dict[tuple[str, str], str] = field(default_factory=dict)
    stamped_at: float = 0.0
    orphaned_at: float | None = None

    def begin(self) -> None:
        """Starts to look; everything that is there already counts as known."""
        recorder = self.fleet.cloud.recorder
        recorder.before_effect.append(self._before)
        recorder.after_effect.append(self._after)
        self.item = self.fleet.raw()
        self.stamped_at = self._now()
        self.was_usable = {n.instance_id for n in self.fleet.sim.cluster.nodes() if n.ready and not n.unschedulable}
        self.launched = {i.id: 0.0 for i in self.fleet.cloud.ec2.instances()}
        self.fleet.deployment.clock.every(LOOK_SECONDS, self._look)
        self.fleet.sim.cluster.on_change(self._changed)

    def disturbed(self, seconds: float = 0.0) -> None:
        """A fault strikes now, or goes on that long: what must happen in time counts from its end."""
        self.disturbed_until = max(self.disturbed_until, self._now() + seconds)

    def finish(self) -> None:
        """The last look: what was written is still there."""
        self._look()
        self._nothing_lost()

    def _now(self) -> float:
        return self.fleet.deployment.clock.now()

    def wrong(self, invariant: str, text: str) -> None:
        line = f"{invariant}: {text}"
        if line not in self.broken:
            self.broken.append(line)

    def _changed(self, change: Change) -> None:
        """The last available pod of the only replica ends on a worker that runs and that AWS does not take."""
        before = change.before
        if change.resource != "pods" or before is None or before["metadata"].get("labels", {}).get("app") != SINGLE:
            return
        pods = [p for p in self.fleet.sim.cluster.objects("pods", "shop") if p["metadata"]["labels"]["app"] == SINGLE]
        machines = self.fleet.sim.cluster.state.machines.values()
        machine = next((m for m in machines if m.node_name == before["spec"].get("nodeName")), None)
        if not _is_available(before) or any(map(_is_available, pods)) or machine is None or not machine.serves:
            return
        excused = self.noticed | self._under_notice | self.speaks_of_itself
        if machine.instance_id not in excused and not self._switches_off():
            self.wrong(ONLY_ONE_STAYS, f"{before['metadata']['name']} ends on {machine.instance_id}")

    # every call ----------------------------------------------------------------------------------------------------

    def _before(self, call: AwsCall) -> None:
        if call.attempts > 1 and call.operation not in ENDING:
            return
        changing = call.operation in ("CreateFleet", "RebootInstances", "StartInstances", "SendCommand", *ENDING)
        document = str(call.parameters.get("DocumentName", ""))
        if changing and not document.endswith(LOOKS_ONLY):
            self._only_the_holder(call)
        if call.parameters.get("InstanceIds") == [self.fleet.deployment.server_id]:
            if call.operation == "StopInstances" and call.function is not None:
                self._may_stop()
        elif call.operation in ENDING and call.function is not None:
            self._may_end(list(call.parameters["InstanceIds"]))
        if document.endswith("DrainNode") and call.parameters["Parameters"]["DrainMode"] == ["voluntary"]:
            self._may_drain()
        if call.operation == "RebootInstances" and call.function is not None:
            self._may_reboot(*call.parameters["InstanceIds"])

    def _after(self, call: AwsCall) -> None:
        if call.service == "dynamodb" and not call.reads:
            self._stored(call)
        if call.operation in ("CreateFleet", "StartInstances"):
            self._count()
        if call.operation == "StartInstances":
            for instance_id in call.parameters["InstanceIds"]:
                self.launched[instance_id] = self._now()
                self.terminated.pop(instance_id, None)

    def _only_the_holder(self, call: AwsCall) -> None:
        who, state = acting.get(), self.fleet.state_of(call.function)
        if state not in HOLDERS or not who or self._answers_a_notice(call):
            return
        owner = self.fleet.raw().get("lock_owner")
        if owner != who:
            self.wrong(ONLY_THE_HOLDER_ACTS, f"{state} of {who} did {call.operation} while {owner} held the lock")

    def _answers_a_notice(self, call: AwsCall) -> bool:
        """What is done about an announced worker needs no lock, in the clean-up as in the workflow that died."""
        said = call.parameters.get("Parameters", {})
        if self.fleet.state_of(call.function) == "CleanUp" and call.parameters.get("DocumentName", "").endswith(FORGET):
            return not {i.id for i in self.fleet.cloud.ec2.instances() if i.state in LIVE} & set(said["InstanceId"])
        operation = said.get("OperationId", [""])[0]
        return operation.startswith("int-") or set(call.parameters.get("InstanceIds", ["?"])) <= self.noticed

    def _may_end(self, ids: list[str]) -> None:
        # A Node of the fleet is named by its instance id; a false Node that states the same id has another name.
        nodes = {n.name: n for n in self.fleet.sim.cluster.nodes() if n.role != "server"}
        live = {i.id for i in self.fleet.cloud.ec2.instances() if i.state in LIVE}
        for instance_id in ids:
            self.terminated.setdefault(instance_id, self._now())
            self._end_by_words(instance_id)
            if instance_id not in live or instance_id in self.noticed or instance_id not in self.was_usable:
                continue
            node = nodes.get(instance_id)
            if node is None or not node.ready:
                continue
            protected = self.fleet.raw().get(f"protected#{instance_id}")
            if protected and int(protected["until"]) > self._now():
                self.wrong(PROTECTED_STAYS, f"{instance_id} is protected until {protected['until']}")
            switches = self._switches_off()
            if switches == "end":
                continue
            left = [p.name for p in self._guests(node.name)]
            if not node.unschedulable or left:
                self.wrong(DRAINED_FIRST, f"{instance_id}: cordoned={node.unschedulable}, still there: {left}")
            stay = self._stay()
            if len(stay) < self.fleet.settings.min_workers and not switches:
                self.wrong(NEVER_BELOW_MIN, f"after {instance_id} only {len(stay)} usable workers are left")

    def _stay(self) -> set[str]:
        """The workers that serve and go on serving."""
        live = {i.id for i in self.fleet.cloud.ec2.instances() if i.state in LIVE}
        staying = live - self._under_notice - self.terminated.keys()
        nodes = [n for n in self.fleet.sim.cluster.nodes() if n.role != "server" and n.instance_id in staying]
        return {n.instance_id for n in nodes if n.ready and not n.unschedulable}

    def _begun(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """The intent decides: a termination that has begun is completed, whatever is ordered then."""
        before = {t["instance_id"]: t["phase"] for t in _rows((old.get("operation") or {}).get("targets"))}
        now, orders = self._now(), _rows(json.loads(old.get("timed_minimums", "[]")))
        least = max((o["workers"] for o in orders if o["since"] <= now < o["until"]), default=0)
        least = min(least, self.fleet.settings.max_workers)
        if (new.get("operation") or {}).get("hibernate"):
            return
        for target in _rows((new.get("operation") or {}).get("targets")):
            worker, begins = target["instance_id"], target["phase"] == "terminating"
            if not begins or before.get(worker) == "terminating" or worker in self.noticed:
                continue
            node = next((n for n in self.fleet.sim.cluster.nodes() if n.name == worker), None)
            if node is not None and node.ready and len(stay := self._stay() - {worker}) < least:
                self.wrong(NEVER_BELOW_ORDER, f"{worker} ends and {len(stay)} of {least} stay")

    def _switches_off(self) -> str:
        """How the open operation switches the fleet off; empty when it does not. It begins while that is ordered."""
        operation = self.fleet.raw().get("operation") or {}
        how = str(operation.get("hibernate", ""))
        begin, end = self.ordered_off
        if how and not begin <= operation["started_at"] <= end:
            self.wrong(OFF_BY_ORDER, f"{operation['operation_id']} begins at {operation['started_at']}")
        return how

    def _may_stop(self) -> None:
        begin, end = self.ordered_off
        live = set(self.fleet.workers())
        if live or not begin <= self._now() <= end:
            self.wrong(
                OFF_BY_ORDER, f"the server is stopped, ordered off from {begin} to {end}, workers {sorted(live)}"
            )

    def _may_drain(self) -> None:
        """By the time of the drain, and by the reading of the decision unless an earlier run took that."""
        operation, execution = self.fleet.raw().get("operation") or {}, self.fleet.execution(acting.get())
        reason, now = operation.get("replace_reason") or "idle", self._now()
        if self.rules.allowed(reason, now, operation.get("workers_before", 1), self.rules_since) < 1:
            self.wrong(BUDGETS_KEPT, f"{operation['operation_id']} ({reason}) begins while no disruption is allowed")
        if execution is None or operation["execution_id"] != execution.arn or "Decide" not in execution.path:
            return
        snapshot = execution.output_of("Decide")["snapshot"]
        joined, gone = disrupted(table_rows(snapshot["workers"]))
        limit = self.rules.allowed(reason, snapshot["at"], joined, self.rules_since)
        if gone + 1 > limit:
            text = f"{operation['operation_id']} ({reason}): {gone} of {joined} disrupted before, at most {limit}"
            self.wrong(BUDGETS_KEPT, text)

    def _may_reboot(self, instance_id: str) -> None:
        node = next((n for n in self.fleet.sim.cluster.nodes() if n.name == instance_id), None)
        protected = self.fleet.raw().get(f"protected#{instance_id}")
        if instance_id in self.rebooted:
            self.wrong(REBOOTED_ONCE, f"{instance_id} is rebooted again")
        self.rebooted.add(instance_id)
        if node is None or not node.ready:
            return
        left = [p.name for p in self._guests(node.name)]
        if left or not node.unschedulable or (protected and int(protected["until"]) > self._now()):
            self.wrong(
                REBOOTED_ONCE, f"{instance_id}: cordoned={node.unschedulable}, {protected=}, still there: {left}"
            )

    def _end_by_words(self, instance_id: str) -> None:
        """Judged by the machine and the pods that run on it; what a Node or a series states plays no part."""
        machine = self.fleet.sim.cluster.state.machines.get(instance_id)
        if machine is None or not machine.serves or instance_id in self.noticed | self.speaks_of_itself:
            return
        if self._switches_off() == "end":
            return
        if left := [p.name for p in self._guests(machine.node_name)]:
            self.wrong(WORDS_END_NO_WORKER, f"{instance_id} runs and has the pods {left}")

    def _guests(self, node_name: str) -> list[Any]:
        pods = [p for p in self.fleet.sim.cluster.pods() if p.node == node_name]
        return [p for p in pods if p.owner_kind not in ("DaemonSet", "Node") and p.phase not in ("Succeeded", "Failed")]

    @property
    def _under_notice(self) -> set[str]:
        notices = {
            name.removeprefix("notice#"): value for name, value in self.item.items() if name.startswith("notice#")
        }
        return {instance_id for instance_id, notice in notices.items() if notice.get("is_due", True)}

    def _count(self) -> None:
        live = [i.id for i in self.fleet.cloud.ec2.instances() if i.state in LIVE]
        counted = set(live) - self._under_notice - {self.fleet.deployment.server_id}
        if len(counted) > self.fleet.settings.max_workers:
            self.wrong(NEVER_ABOVE_MAX, f"{len(counted)} workers, allowed {self.fleet.settings.max_workers}")
        kinds = [i.instance_type for i in self.fleet.cloud.ec2.instances() if i.id in counted]
        vcpus = sum(machine_type(kind).vcpus for kind in kinds)
        if self.max_vcpu and vcpus > self.max_vcpu:
            self.wrong(NEVER_ABOVE_VCPU, f"{vcpus} vCPUs, allowed {self.max_vcpu}")

    # the tables ----------------------------------------------------------------------------------------------------

    def _stored(self, call: AwsCall) -> None:
        table = call.parameters.get("TableName", "")
        if call.operation == "DeleteItem":
            self.wrong(NOTHING_LOST, f"{call.function} deleted from {table}")
        if call.operation == "PutItem":
            self._put(table, call.parameters["Item"])
        if table == self.fleet.settings.state_table:
            old, self.item = self.item, self.fleet.raw()
            self._lock(old, self.item)
            self._order(old, self.item)
            self._operation(old, self.item)
            self._begun(old, self.item)
            self._stamp(old, self.item)
            self.noticed |= self._under_notice
            self._count()

    def _put(self, table: str, item: Mapping[str, Any]) -> None:
        key, who = (table, item["sk"]["S"]), acting.get()
        by = self.written.setdefault(key, who)
        if by != who and key[1].startswith("event#"):
            self.wrong(NOTHING_LOST, f"{key[1]} of {by} was overwritten by {who}")

    def _nothing_lost(self) -> None:
        for table in (self.fleet.settings.history_table, self.fleet.settings.events_table):
            wanted = sum(1 for name, _ in self.written if name == table)
            found = len(self.fleet.rows(table))
            if found < wanted:
                self.wrong(NOTHING_LOST, f"{table} holds {found} items, {wanted} different ones were written")

    def _lock(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        before, after = old.get("lock_owner"), new.get("lock_owner")
        if int(new.get("lock_fence", 0)) < int(old.get("lock_fence", 0)):
            self.wrong(ONE_HOLDER, f"the fence fell from {old.get('lock_fence')} to {new.get('lock_fence')}")
        if before == after:
            return
        if after is not None and new.get("lock_fence") == old.get("lock_fence"):
            self.wrong(ONE_HOLDER, f"{after} took the lock and the fence stayed at {new.get('lock_fence')}")
        if before is None or int(old.get("lock_expires_at", 0)) < self._now():
            return
        holder = self.fleet.execution(str(before))
        runs = holder.running if holder else str(before).startswith("clean-up:")
        if runs and acting.get() not in ("", before):
            self.wrong(ONE_HOLDER, f"{acting.get()} took the lock of {before}, which runs")

    def _order(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        before, after = old.get("hibernate_order"), new.get("hibernate_order")
        if after != before and after is not None:
            begin, end = self.ordered_off
            off = after["kind"] == "sleep"
            now = self._now()
            self.ordered_off = (now - 1, float(after["until"])) if off else (begin, min(end, now + LOOK_SECONDS))

    def _operation(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        before, after = old.get("operation") or {}, new.get("operation") or {}
        if before and before.get("operation_id") != after.get("operation_id"):
            for node in self.fleet.sim.cluster.nodes():
                owner = node.annotations.get(CORDONED_BY, "")
                set_aside = f"set_aside#{node.instance_id}" in new
                if owner in self.closed and node.unschedulable and node.machine_up and not set_aside:
                    self.wrong(CORDONS_END, f"{node.name} is still cordoned by {owner}; {before['operation_id']} ended")
            self.closed.append(str(before["operation_id"]))

    def _stamp(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        before, after = _memory(old), _memory(new)
        if before.get("last_action_at", 0) == after.get("last_action_at", 0):
            return
        action = after.get("last_action")
        self._see_usable()
        gained = [i for i, at in self.launched.items() if i in self.was_usable and at > 0]
        changes = gained if action == "scale_up" else [i for i, at in self.terminated.items() if at > 0]
        if not changes:
            self.wrong(HONEST_STAMP, f"{action} was stamped, but no worker joined or ended")
        self.stamped_at = self._now()

    # every few seconds ---------------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = self._now()
        self._see_usable()
        for instance in self.fleet.cloud.ec2.instances():
            self.launched.setdefault(instance.id, now)
        self._forgotten(now)
        self._lock_in_time(now)
        self._count()

    def _see_usable(self) -> None:
        self.was_usable |= {n.instance_id for n in self.fleet.sim.cluster.nodes() if n.ready and not n.unschedulable}

    def _forgotten(self, now: float) -> None:
        """A worker outside every count: it never joined, still runs, and no decision has seen it."""
        settings = self.fleet.settings
        limit = settings.join_limit_seconds + 2 * settings.interval_seconds
        for instance in self.fleet.cloud.ec2.instances():
            if instance.state not in LIVE or instance.id in self.was_usable or instance.id in self.adopted:
                continue
            since = max(self.launched.get(instance.id, now), self.disturbed_until)
            if now - since <= limit or instance.id == self.fleet.deployment.server_id:
                continue
            if not self._decided_about(instance.id):
                self.wrong(NOBODY_FORGOTTEN, f"{instance.id} is unknown {now - since:.0f} s after its launch")

    def _decided_about(self, instance_id: str) -> bool:
        """The fleet has looked at it since: it stands in the record of a decision."""
        for row in self.fleet.rows(self.fleet.settings.events_table):
            if row.get("kind") == "decision" and instance_id in str(row.get("data", "")):
                self.adopted.add(instance_id)
                return True
        return False

    def _lock_in_time(self, now: float) -> None:
        owner = self.item.get("lock_owner")
        holder = self.fleet.execution(str(owner)) if owner else None
        orphaned = owner is not None and not (holder and holder.running)
        if not orphaned:
            self.orphaned_at = None
            return
        self.orphaned_at = max(self.orphaned_at or now, self.disturbed_until)
        settings = self.fleet.settings
        limit = settings.lease_seconds + settings.lease_skew_seconds + settings.interval_seconds
        if now - self.orphaned_at > limit:
            self.wrong(LOCK_GETS_FREE, f"{owner} does not run and holds the lock for {now - self.orphaned_at:.0f} s")


def _rows(data: Any) -> list[dict[str, Any]]:
    """An empty list is stored as such, every other one as a table."""
    return table_rows(data) if data else []


def _is_available(pod: dict[str, Any]) -> bool:
    return condition_is_true(pod, "Ready") and not is_terminating(pod)


def _memory(item: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(item["memory"]) if item.get("memory") else {}
    return found
