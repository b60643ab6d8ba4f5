"""Measures what the tests notice: puts one small fault after another into the code and runs the tests of that line.

`./node-fleet mutate` starts it. The faults are put into a copy of the tree, in a temporary folder, which is removed.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tests.mutation import coverage_map, warm_session
from tests.mutation.coverage_map import CoverageMap
from tests.mutation.mutants import ROOT, TARGETS, Mutant, is_equivalent, mutants_of, targets
from tests.mutation.warm_session import KILLED, NEEDS_PROCESS, SURVIVED, TIMED_OUT, Job, Verdict

IGNORED = shutil.ignore_patterns(".git", ".venv", ".cache", ".hypothesis", "__pycache__", "cdk.out*", "node_modules")
QUIET = ("-q", "--no-header", "--no-summary", "--show-capture=no", "-p", "no:cacheprovider", "-W", "ignore")
UNCHANGED = -1
LONGEST_SECONDS = 900
"""The limit for the tests without a mutant."""
MOST_SECONDS = 300
"""How many seconds of other tests are tried against a mutant that the fast ones do not notice."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="node-fleet mutate", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="only mutants of these (all that targets.toml lists)")
    parser.add_argument("--number", type=int, default=100, help="how many mutants, drawn at random (100)")
    parser.add_argument("--seed", type=int, help="repeats the run that printed it (a new one)")
    parser.add_argument("--minutes", type=float, default=60, help="start no mutant after these minutes (60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")
    parser.add_argument(
        "--all", action="store_true", help="try the slow tests against mutants that the fast ones do not notice"
    )
    parser.add_argument("--at-least", type=float, default=0, metavar="PERCENT", help="fail below this score")
    options = parser.parse_args(words)
    options.files = [Path(file).resolve().relative_to(ROOT).as_posix() for file in options.files]
    unknown = sorted(set(options.files) - set(targets()))
    if unknown:
        parser.error(f"{unknown[0]} is not in tests/mutation/targets.toml, which lists the files to change")
    return options


def main(words: Sequence[str]) -> int:
    """Make the map, run the mutants, report."""
    options = parse(words)
    begun, seed = time.monotonic(), secrets.randbelow(10**6) if options.seed is None else options.seed
    found = [mutant for file in options.files or targets() for mutant in mutants_of(file)]
    drawn = random.Random(seed).sample(found, min(options.number, len(found)))
    mutants = [mutant for mutant in drawn if not is_equivalent(mutant)]
    say(f"{len(drawn)} of {len(found)} mutants; --seed {seed} repeats them")
    with tempfile.TemporaryDirectory(prefix="node-fleet-mutants-") as folder:
        copies = [Path(folder) / f"copy-{number}" for number in range(options.jobs)]
        for copy in copies:
            shutil.copytree(ROOT, copy, ignore=IGNORED, symlinks=True)
        known = read_map(copies[0], options.jobs, TARGETS["tests"])
        jobs = [job_of(number, mutant, known) for number, mutant in enumerate(mutants)]
        end = begun + 60 * options.minutes
        verdicts = run(jobs, copies, end)
        score = report(mutants, verdicts, jobs, len(drawn) - len(mutants))
        if options.all and any(v.status == SURVIVED for v in verdicts):
            share_tools(copies[0])
            slow = [f"--ignore={folder}" for folder in (*TARGETS["tests"], *TARGETS["left_out"])]
            others = read_map(copies[0], options.jobs, ["--all", *slow, "tests"])
            verdicts = list(run_slow_tests(jobs, verdicts, others, copies[0], end))
            score = report(mutants, verdicts, jobs, len(drawn) - len(mutants))
    if score < options.at_least:
        say(f"the score is below {options.at_least:g} %: strengthen the tests, or list what is equivalent and why")
        return 1
    return 0


def say(text: str) -> None:
    """Print progress."""
    print(f"node-fleet: {text}", file=sys.stderr, flush=True)


def share_tools(copy: Path) -> None:
    """Let the slow tests in a copy find what takes long to install; what belongs to a state of the tree stays apart."""
    kept = ROOT / ".cache"
    (copy / ".cache").mkdir(exist_ok=True)
    for path in kept.iterdir() if kept.is_dir() else ():
        if path.name in ("asl-tools", "axe", "elk", "layers"):
            (copy / ".cache" / path.name).symlink_to(path)


def read_map(copy: Path, processes: int, words: list[str]) -> CoverageMap:
    """The tests of each line, from the cache or by running them once. words: for pytest."""
    digest = hashlib.sha256(repr(words).encode())
    for file in sorted(path for path in copy.rglob("*") if path.is_file()):
        digest.update(file.relative_to(copy).as_posix().encode() + b"\0" + file.read_bytes())
    kept = ROOT / ".cache" / "mutation" / digest.hexdigest()[:20]
    if not kept.is_dir():
        shown = " ".join(word for word in words if not word.startswith("--ignore"))
        say(f"run {shown} once, to record which test runs which line")
        with tempfile.TemporaryDirectory() as folder:
            workers = ("-n", str(processes), "--dist", "loadfile") if processes > 1 else ()
            plugin = ("-p", coverage_map.__name__)
            pytest(copy, [*plugin, *workers, *words], {coverage_map.FOLDER: folder}).wait()
            kept.mkdir(parents=True)
            for part in Path(folder).iterdir():
                shutil.copy(part, kept)
    known = CoverageMap.read(kept)
    if not known.seconds:
        raise SystemExit("node-fleet: the tests do not run without a mutant; try ./node-fleet test")
    for test in known.failed:
        say(f"{test} fails without a mutant and is not used")
    return known


def job_of(number: int, mutant: Mutant, known: CoverageMap) -> Job:
    """What to run for a mutant. The limit is far above what the tests take without a mutant."""
    tests = known.tests_of(mutant.file, mutant.line)
    limit = 20 + 3 * sum(known.seconds[test] for test in tests)
    is_loaded = not known.is_run_by_tests(mutant.file, mutant.line)
    return Job(number, mutant.file, mutant.line, mutant.text(), tests, round(limit), needs_process=is_loaded)


def run(jobs: list[Job], copies: list[Path], end: float) -> list[Verdict]:
    """Run the jobs in one process for each copy, then those that need a process of their own."""
    given = [job for job in jobs if job.tests]
    verdicts = [Verdict(job.number, SURVIVED) for job in jobs if not job.tests]
    waiting = [
        start(copy, given[place :: len(copies)]) for place, copy in enumerate(copies) if given[place :: len(copies)]
    ]
    for process, results in waiting:
        try:
            process.wait(timeout=max(1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            say("the time is over, the other mutants were not run")
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
        first, *others = [Verdict(**json.loads(line)) for line in lines] or [Verdict(UNCHANGED, SURVIVED)]
        if first.status != SURVIVED:
            raise SystemExit(f"node-fleet: a test fails in a fork without a mutant: {first.test}")
        verdicts += others
    by_number = {job.number: job for job in jobs}
    return [
        again(by_number[v.number], copies[0]) if v.status == NEEDS_PROCESS else v
        for v in sorted(verdicts, key=lambda v: v.number)
        if v.status != NEEDS_PROCESS or time.monotonic() < end
    ]


def start(copy: Path, jobs: list[Job]) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a process that forks for each of the jobs."""
    given, results = copy.with_suffix(".jobs"), copy.with_suffix(".results")
    lines = (json.dumps(asdict(job)) + "\n" for job in (unchanged(copy, jobs), *jobs))
    given.write_text("".join(lines), encoding="utf-8")
    files = sorted({test.partition("::")[0] for job in jobs for test in job.tests})
    variables = {warm_session.JOBS: str(given), warm_session.RESULTS: str(results)}
    return pytest(copy, ["-p", warm_session.__name__, *files], variables), results


def unchanged(copy: Path, jobs: list[Job]) -> Job:
    """The tests of the first jobs without a mutant, which have to pass."""
    tests = list(dict.fromkeys(test for job in jobs[:5] for test in job.tests[:10]))
    file = jobs[0].file
    return Job(UNCHANGED, file, 0, (copy / file).read_text(encoding="utf-8"), tests, LONGEST_SECONDS)


def again(job: Job, copy: Path, *words: str) -> Verdict:
    """Run the tests in a new process, which loads the mutant from its file."""
    given = copy.with_suffix(".job")
    given.write_text(json.dumps(asdict(job)) + "\n", encoding="utf-8")
    files = sorted({test.partition("::")[0] for test in job.tests})
    return in_new_process(
        job, copy, ["-x", *words, "-p", warm_session.__name__, *files], {warm_session.JOBS: str(given)}
    )


def run_slow_tests(
    jobs: list[Job], verdicts: list[Verdict], known: CoverageMap, copy: Path, end: float
) -> Iterator[Verdict]:
    """Try the mutants that no fast test notices with the slow tests that run the line, up to a limit of time."""
    for verdict in verdicts:
        job = jobs[verdict.number]
        tests = known.tests_of(job.file, job.line, MOST_SECONDS) if verdict.status == SURVIVED else []
        if not tests or time.monotonic() > end:
            yield verdict
            continue
        say(f"{len(tests)} slow tests of {job.file}:{job.line}")
        limit = LONGEST_SECONDS + round(10 * sum(known.seconds[test] for test in tests))
        found = again(replace(job, tests=tests, limit_seconds=limit), copy, "--all")
        yield found if found.status == KILLED else verdict  # on a busy machine a time limit says nothing


def in_new_process(job: Job, copy: Path, words: list[str], variables: dict[str, str]) -> Verdict:
    """Run pytest while the file has the fault."""
    path, begun = copy / job.file, time.monotonic()
    original = path.read_text(encoding="utf-8")
    path.write_text(job.text, encoding="utf-8")
    try:
        process = pytest(copy, words, variables)
        try:
            status = SURVIVED if process.wait(timeout=job.limit_seconds) == 0 else KILLED
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = TIMED_OUT
    finally:
        path.write_text(original, encoding="utf-8")
    return Verdict(job.number, status, "", round(time.monotonic() - begun, 2))


def pytest(copy: Path, words: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start pytest in a copy. Compiled files would hide a fault that comes within the same second."""
    path = os.pathsep.join([str(copy), str(copy / "functions")])
    given = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    out = None if os.environ.get("NODE_FLEET_MUTATION_OUTPUT") else subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", "pytest", *QUIET, *words], cwd=copy, env=given, stdout=out)


def report(mutants: list[Mutant], verdicts: list[Verdict], jobs: list[Job], equivalent: int) -> float:
    """Print the mutants that no test notices, and return the score."""
    for line in unnoticed(mutants, verdicts, jobs):
        print(line)
    count = collections.Counter(verdict.status for verdict in verdicts)
    noticed, total = count[KILLED] + count[TIMED_OUT], len(verdicts)
    score = 100 * noticed / total if total else 100.0
    print(
        f"{count[KILLED]} killed, {count[TIMED_OUT]} timed out, {count[SURVIVED]} survived, "
        f"{equivalent} are listed as equivalent: score {score:.1f} %",
        flush=True,
    )
    return score


def unnoticed(mutants: list[Mutant], verdicts: list[Verdict], jobs: list[Job]) -> Iterator[str]:
    """Where each mutant that no test notices is, and its change."""
    for verdict in verdicts:
        if verdict.status == SURVIVED:
            mutant, number = mutants[verdict.number], len(jobs[verdict.number].tests)
            tests = {0: "no test runs", 1: "1 test runs"}.get(number, f"{number} tests run")
            yield f"SURVIVED {mutant.file}:{mutant.line} in {mutant.function or 'the module'}; {tests} this line"
            for sign, text in zip("-+", mutant.diff(), strict=True):
                yield from (f"  {sign} {line}" for line in text.splitlines())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
