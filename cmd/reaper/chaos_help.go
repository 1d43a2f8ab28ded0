package main

const chaosHelp = `Makes a storm on a queue of its own and says whether all promises were kept: worker processes work on the queue, jobs
come, and faults happen by a schedule that a seed makes: workers are killed, frozen and cut off, replies are lost, the
server stands still, and so on. Then the faults end, the queue has to get quiet, it is drained and read, and every job is
judged by the histories that all processes have written. '--faults list' tells what can go wrong, and what of it can be
made here.

Without --redis a redis-server from PATH is started for the run, with an append-only file. A server that is given with
--redis is used as it is: the run has a queue of its own on it and removes that at the end, but what a fault does to the
server hits everything that is there. So do not name one that others need. It is the one flag that has no variable.

The workers are processes of this program, whose handlers succeed, fail, give back, give up, panic and hang. A program
of yours can be the worker: its command line stands behind --, and --kind says which jobs it gets. It takes its server
and queue from LEASEQ_CHAOS_URL, LEASEQ_CHAOS_PREFIX and LEASEQ_CHAOS_QUEUE, and has the middleware and hooks of package
chaos/record around its handlers; see docs/reaper.md. SIGTERM must end it in order.

The run lasts for --duration, and ends 15 s later at the latest. Standard error tells how far it is. With --json standard
output has one object and nothing else: ok, seed, jobs, acked, dead, kills, stops, lost, unexpected, duplicated,
duplicates_allowed, recovered (jobs whose lease ran out and that were claimed again), violations, recovery_ms_p50,
recovery_ms_p99, recovery_ms_max, quiet_ms, slack_ms, faults (by name: times, bit = of them with effect, unavailable = why not
here), silent (faults without effect), sometimes (interesting cases: how often each happened), missing (those that did
not), problems, schedule, windows, seconds, report.

Exit codes:
  0    nothing was lost, unexpected or violated, there were no more duplicates than the faults explain, and nothing was
       wrong with the run itself; with --strict also: every fault had an effect, and every case happened
  1    something was found, or the run was interrupted, which ends all that it had started; it is void then
  2    a wrong flag, argument or variable; nothing was done
  3    no access to the server that --redis names`

const chaosExample = `  reaper chaos                                      30 s, on a redis-server of its own
  reaper chaos --duration 10m --seed 42 --report storm.html
  reaper chaos --faults list
  reaper chaos --faults worker-kill,worker-stop,reply-drop --lease 500ms --rate 1000
  reaper chaos --redis redis://127.0.0.1:6379/9 --prefix test
  reaper chaos --json | jq '{ok, lost, violations, kills, silent}'
  reaper chaos --json --faults worker-kill | jq '.faults["worker-kill"].bit'
  reaper chaos --save-schedule storm.json && reaper chaos --schedule storm.json
  reaper chaos --kind order.close --payload '{"order":{n}}' -- ./my-worker --verbose`
