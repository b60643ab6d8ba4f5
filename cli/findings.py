"""Checks of doctor and preflight: each finds a state, and the fix where something is wrong. They only read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError

from cli.output import CommandError, console, print_json, working
from node_fleet.adapters.secrets import SecretError
from node_fleet.domain.model.errors import NodeFleetError
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings.groups import SettingValues
from node_fleet.settings.validation import ineffective, surprises

Verdict = Literal["ok", "warn", "fail"]
SIGNS = {"ok": "[green]✓[/green]", "warn": "[yellow]![/yellow]", "fail": "[red]✗[/red]"}


@value_class
class Finding:
    """The result of one check. `fix` is empty when nothing has to be done."""

    name: str
    verdict: Verdict
    saw: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """`find` makes the finding; `fix` is for the case that it raises an error."""

    name: str
    find: Callable[[], Finding]
    fix: str


def settings_finding(settings: SettingValues) -> Finding:
    """No setting is without effect beside the others, and the times off have no gap that surprises."""
    fix = "set max_workers above min_workers by at least one, or drift to report and repair to false"
    fixes = {**dict.fromkeys(ineffective(settings), fix), **surprises(settings)}
    if fixes:
        return Finding(name="settings", verdict="warn", saw="; ".join(fixes), fix="; ".join(fixes.values()))
    return Finding(name="settings", verdict="ok", saw="none is without effect")


def findings_of(checks: Iterable[Check]) -> Iterator[Finding]:
    """Run the checks in their order. A check that cannot be made is a failed one."""
    for check in checks:
        with working(f"checking: {check.name}"):
            finding = _finding_of(check)
        yield finding


def _finding_of(check: Check) -> Finding:
    try:
        return check.find()
    except CommandError as error:
        return Finding(name=check.name, verdict="fail", saw=error.text, fix=error.hint or check.fix)
    except (NodeFleetError, SecretError) as error:
        return Finding(name=check.name, verdict="fail", saw=str(error), fix=check.fix)
    except ClientError as error:
        saw = f"{error.response['Error']['Code']}: {error.response['Error'].get('Message', '')[:160]}"
        return Finding(name=check.name, verdict="fail", saw=saw, fix=check.fix)
    except BotoCoreError as error:
        fix = "check the network and the AWS profile"
        return Finding(name=check.name, verdict="fail", saw=str(error)[:200], fix=fix)


def report(checks: Iterable[Check], *, as_json: bool) -> None:
    """Print every finding when it is known.

    Raises:
        CommandError: a check failed.
    """
    findings = []
    for finding in findings_of(checks):
        findings.append(finding)
        if not as_json:
            _show(finding)
    if as_json:
        print_json([asdict(one) for one in findings])
    bad = [one for one in findings if one.verdict == "fail"]
    if bad:
        raise CommandError(f"{len(bad)} of {len(findings)} checks failed", hint=f"first: {bad[0].fix}")


def _show(finding: Finding) -> None:
    """Print one line, and the fix below it."""
    out = console()
    out.print(f"{SIGNS[finding.verdict]} ", end="")
    out.print(f"{finding.name}  ", markup=False, style="bold", end="")
    out.print(finding.saw, markup=False)
    if finding.fix:
        out.print(f"    fix: {finding.fix}", markup=False, style="cyan")
