package main

const enqueueHelp = `Enqueues one job and prints its ID, or with --jsonl one job for each line of a file.

One job: the payload is the second argument, the bytes of --file, or with - the bytes of standard input; nothing is
added to it or taken from it. A payload that begins with a dash stands behind --. Where a job with the --id exists
already, nothing is done, the place where it is is told, and the exit code is 1; with --accept-duplicate, or --on-conflict keep,
it is 0. --on-conflict replace puts the job in the place of one that is due, dead or done. An answer that is lost is asked for
again without making a second job.

Many jobs: with --jsonl each line that is not blank is one JSON object:

  kind             the job's kind; may be left out where --kind is given
  payload          a text: its bytes in UTF-8 are the payload; anything else: its JSON is, byte for byte as it stands
  payload_base64   instead of payload: any bytes, in base64 with padding; without both the payload is empty
  id               default: made from the line, see below
  delay            as "30m", from when the line is sent; or
  at               as "2026-01-31T08:00:00Z" (RFC 3339), by Redis' clock
  not_after        a time as of at, after which the job is too late to be started
  on_conflict      reject, keep (the same: a line whose job is there is no failure), or replace
  headers          an object of texts
  max_retries, max_expiries

A line has at most 4 MiB, and the file any number of lines: at most two batches of up to 256 lines and about 4 MiB are
held at a time. A line that is wrong, too long, or holds a field that is not of this list, is reported with its number
and not sent; the others are, and the exit code is 1. --dry-run checks all lines and sends nothing. Lines whose job
exists already are counted and left alone, which is no failure.

A line without an id gets line:<number>:<hash>, where hash is made by SHA-256 of --series (empty unless given) and the
line's bytes without its end. So the same file makes no job twice, however often it is sent and wherever sending broke
off. Of what this does not protect:
  - a job that was acked, cancelled or purged meanwhile is made again. Go on with --from-line, which is told whenever
    sending ends early, and nothing that was acked is sent again.
  - lines that moved, since a line was added or removed before them, are other lines. Add at the end only.
  - another file with the same line under the same number makes the same ID, and so no job while the first one's is
    there. Give each file a --series of its own.

SIGINT and SIGTERM end it after the batch that is under way, and it says where to go on; so does an outage longer than
--timeout. A batch whose answer was lost is never sent as a new one: Redis is asked what became of it.`

const enqueueExample = `  reaper enqueue orders --kind order.close '{"id":"10086"}' --id close:10086 --delay 30m
  reaper enqueue orders --kind label.print --file label.pdf --header tenant=acme --payload-limit 2000000
  pg_dump … | reaper enqueue backups --kind store -
  reaper enqueue orders --kind order.close --jsonl orders.jsonl --dry-run
  reaper enqueue orders --kind order.close --jsonl orders.jsonl --series 2026-01-31
  reaper enqueue orders --jsonl orders.jsonl --from-line 4097`
