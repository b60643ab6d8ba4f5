// Runs executions of a state machine in aws-local-stepfunctions, in virtual time, with the recorded answers of every task.
// One JSON line on stdin is one execution; the line it gets back has what the interpreter visited and how it ended.
"use strict";
const { createInterface } = require("node:readline");
const { createRequire } = require("node:module");

const packages = createRequire(`${process.argv[2]}/`);
const { StateMachine } = packages("aws-local-stepfunctions");
const FakeTimers = packages("@sinonjs/fake-timers");

const machines = new Map();
const LONGEST_TIMER_SECONDS = Math.floor((2 ** 31 - 1) / 1000); // node fires a longer one at once

/** JSON text that is the same for equal values. */
function canonical(value) {
  const sorted = (_, part) =>
    part && typeof part === "object" && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part;
  return JSON.stringify(value, sorted);
}

function tasksOf(definition) {
  return Object.entries(definition.States).flatMap(([name, state]) => [
    ...(state.Type === "Task" ? [name] : []),
    ...[...(state.Branches ?? []), state.ItemProcessor ?? []].flat().flatMap(tasksOf),
  ]);
}

/** A handler for each task: it returns, raises or outlasts its limit as the recorded call with the same input did. */
function handlersFor(definition, calls, startTimes, problems) {
  const recorded = new Map();
  for (const call of calls) {
    const key = `${call.state} ${canonical(call.input)}`;
    recorded.set(key, [...(recorded.get(key) ?? []), call]);
  }
  const answer = (state) => (input) => {
    const text = canonical(input).replaceAll(startTimes.interpreter, startTimes.recorded);
    const call = recorded.get(`${state} ${text}`)?.shift();
    if (!call) {
      problems.push(`${state} is called with an input that was not recorded: ${text.slice(0, 2000)}`);
      throw Object.assign(new Error("not recorded"), { name: "NotRecorded" });
    }
    if (call.timed_out) return new Promise(() => {});
    if ("error" in call) throw Object.assign(new Error(call.cause), { name: call.error });
    return structuredClone(call.output);
  };
  return {
    handlers: Object.fromEntries(tasksOf(definition).map((state) => [state, answer(state)])),
    unused: () => [...recorded.values()].flat().map((call) => call.state),
  };
}

async function replay(job) {
  if (job.definition) {
    const limit = Math.min(job.definition.TimeoutSeconds, LONGEST_TIMER_SECONDS);
    machines.set(job.machine, [new StateMachine({ ...job.definition, TimeoutSeconds: limit }), job.definition]);
  }
  const [machine, definition] = machines.get(job.machine);
  const clock = FakeTimers.install({
    now: job.started_at * 1000,
    toFake: ["setTimeout", "clearTimeout", "Date"],
  });
  try {
    const problems = [];
    const visits = [];
    const startTimes = { interpreter: new Date().toISOString(), recorded: job.start_time };
    const { handlers, unused } = handlersFor(definition, job.calls, startTimes, problems);
    const execution = machine.run(job.input, {
      context: { Execution: { Id: job.id } },
      overrides: { taskResourceLocalHandlers: handlers },
    });
    let ended;
    execution.result.then(
      (output) => (ended = { status: "SUCCEEDED", output }),
      ({ cause, message }) => (ended = { status: "FAILED", error: cause?.name ?? message, cause: cause?.message }),
    );
    (async () => {
      for await (const { type, state, index } of execution.eventLogs) {
        if (type === "StateEntered") visits.push({ state: state.name, item: index ?? null, input: state.input });
      }
    })();
    while (!ended) await clock.nextAsync();
    await clock.tickAsync(0);
    return { ...ended, visits, unused: unused(), problems };
  } finally {
    clock.uninstall();
  }
}

(async () => {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await replay(JSON.parse(line)))}\n`);
  }
})();
