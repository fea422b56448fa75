package report

const intro = `# Faults

Written by ` + "`make faults`" + `; do not edit. Each row breaks something under real daemons,
under load, with a real Redis where counts are shared, and tells what came of it.

| | |
|---|---|
| Date | %s |
| Machine | %s |

## How it is done

Unless a row says otherwise there are three daemons as ` + "`weir serve --redis …`" + ` starts
them: consistency exact, ` + "`--on-error local`" + `, and the policy that each daemon has without a
configuration, 100 per second with a burst B of 100 for each key. A client in one process
asks them by turns, 600 times a second whether answers come or not, which takes about a
third of two cores. Two of its twenty keys are hot: asked for 200 times a second, twice
what they may have.

It notes when it sent each question and when it had the answer. The **excess** E is by how
many units the admissions of a key exceed B + 100 × Δ in the interval Δ where they do so
most; negative means that there was room. A decision was made at some moment between
question and answer, and E is what is certain whatever these moments were. The greatest
E of all keys is told, beside its bound.

Every row also has to show that

- all answers are decisions: no status other than 200, and no connection that breaks,
- where counts are shared, they are again afterwards: what one daemon takes, the next
  refuses.

F12 has callers of all protocols instead, about a hundred and fifty of them: HTTP/1.1 with
JSON, Connect over HTTP/1.1 and HTTP/2, gRPC, Envoy's rate limit service and the Redis
protocol with pipelines; some wait for their turn in the daemon (` + "`max_wait_ms`" + `), and some call so
seldom that the daemon takes their connection for idle. They try nothing again.

F23 asks for one key only, 300 times a second, so that all units whose outcome is unknown
are that key's. F24 and F27 have two daemons, a configuration file, and 1 s for an answer of
Redis, so that a busy machine does not look like an outage.

F13, F15, F16, F20 and F28 have one daemon, which counts in memory and has a configuration
file with the same policy and, where the row needs them, others.

*Given up* is when the last daemon logs that it no longer asks Redis for each decision,
counted from the fault; *back* is when the last one does so again, counted from Redis's
first PONG or from the end of the fault. Memory, threads and files (which count
connections) are the greatest among the daemons.

` + "```" + `
make faults                                          # all of it, some minutes
WEIR_FAULTS=long go test -C faults -run Killed -v .  # one row; writes no page
go test -C faults .                                  # the short form, as in make test
` + "```" + `

## Rows

`

const outro = `
## How to read it

- **Decided alone** counts the decisions that a daemon made without Redis, by its share
  of the limit: 100 / 3 per second and a burst of 100 / 3. Where a row is not about an
  outage there should be none, but a daemon waits 10 ms for Redis and no longer, and on a
  machine whose processors are busy that happens. The row's bound then has 2B on top.
- **Others had** says which part of the processors' time went to programs that are no
  part of the row. Load, daemons and Redis share the cores with them, and times include
  the client's own. Where others had more than a tenth, times that were missed (and the
  memory for calls that waited) are told but not judged.
- **Calls in standstills**: a thread on each processor sleeps for a millisecond at a time.
  When one sleeps for 5 ms or more, calls that were under way are left out of p99 and
  longest: the processor was not to be had, for anybody.
- **Times without a bound** are told for who wants to know them; the row asks for none.
  How long a call may take at most is judged where Redis gives no answer (F2, F3).
- **Charges of one call** are seen by another daemon, whose way to Redis is good. It looks
  at keys that were asked for once.
- Clocks (F14) are tried on nodes in one process, each made of what a daemon is made of,
  since a Go program reads the system's clock without the C library and faketime does not
  reach it. A daemon's own clock never steps back: it is the wall clock at the start of the
  process, monotonic from then on, and follows steps of the wall clock forward only. So what
  can step back is the clock of the store.
- The wall clock of a daemon (F28) is faked by building it with a standard library whose
  time.Now adds to the wall clock what a file says. The monotonic clock is left alone, as it
  is when a machine's clock is set, or when the machine is suspended.
- **Told that they were not carried out** (F12): a caller that sends on an idle connection
  just when that is being closed is told so, by a 408 (HTTP/1.1), a GOAWAY (HTTP/2, gRPC) or
  an error that begins with LOADING (RESP, where it holds for all commands after it, too).
  GOAWAY is not counted: clients send again by themselves what it says was not looked at. In
  the Redis protocol nothing asks a client to leave, so everybody who keeps sending is told;
  who was silent for a second is not, and may lose what it sends at that very moment.
  What was told must not be in Redis, and what was admitted must be.
- **Numbers of two versions** (F13): a request is decided by the rules of one version of
  the file: which policies there are, and what is off, in shadow or overridden. Rates and
  bursts are changed where the counts are, one policy after the other and before the rules
  follow, so that what was used stays used. A batch can meet that half done, and a single
  answer can tell the new limit in its body and the old one in its headers. Files are not
  made empty before they are written again: an empty file is a configuration, too.
- **Slow clients** (F16): when all of its connections are taken, the daemon closes those
  that were opened a second ago or earlier and have not sent one whole request, the oldest
  first, for others. The rest has 5 s for its head and 8 s for its body.
`
