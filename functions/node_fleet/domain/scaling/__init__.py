"""Scaling decisions: how many workers to add or remove, and why. Pure functions of snapshot, memory, policy and time.

How a reading becomes a launch:

1. CollectMetrics reads Prometheus (`PrometheusReader.read`) and EC2 (`Ec2Fleet.instances`), and joins both into one
   `Snapshot` (`assemble`).
2. Decide calls `decision.decide(snapshot, memory, policy, now)`, which counts the workers once (`make_tick`) and takes
   the effective minimum (`effective_minimum`).
3. The strategy of the preset (`apply_thresholds` or `apply_adaptive`) evaluates the signals, each to a `Check` with its
   value, threshold and text, and answers with one `DesiredChange`.
4. `decide` takes the first rule that applies (minimum, scale-up, NotReady worker, scale-down, nothing), limits it by
   maximum, back-off and cooldown, and returns a `Decision` with its sentence, checks, alerts and the next `Memory`.
5. On `scale_up` the workflow runs LaunchNodes, which reserves `decision.count` slots, places them (`plan_slots`) and
   starts the instances (`Launcher`).
"""
