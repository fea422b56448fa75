package report

const intro = `# Faults

Find what callers see when Redis, the network, a disk, a clock or a daemon fails: look the fault up
under [Rows](#rows). Each row breaks something under real daemons and under load, with a real Redis
where counts are shared. It says what must hold, what was measured, and whether it was met.

Run the rows yourself:

` + "```" + `
make faults                                          # all of it, some minutes; writes this page
WEIR_FAULTS=long go test -C faults -run Killed -v .  # one row; writes no page
go test -C faults .                                  # the short form, as in make test
` + "```" + `

## How to read it

- **E**, the excess, is by how many units the admissions of a key exceed B + 100 × Δ in the
  interval Δ where they exceed it most; negative means that there was room. B is the burst. A
  decision is made at some time between request and response, and E is a lower bound whatever
  these times were. A row has the greatest E of all keys, beside its bound.
- **Breaker open** is when the last daemon logs that it no longer calls Redis for each decision,
  counted from the fault; **back** is when the last one does so again, counted from Redis's
  first PONG or from the end of the fault.
- **Decided alone** counts the decisions that a daemon made without Redis, by its share
  of the limit: 100 / 3 per second and a burst of 100 / 3. Where a row is not about an
  outage there should be none, but a daemon waits 10 ms for Redis and no longer, and on a
  busy machine a reply can be later than that. The row's bound then has 2B on top.
- **Others had** is the part of the processors' time that went to programs that are no
  part of the row. Load, daemons and Redis share the cores with them, and times include
  the client's own. Where others had more than a tenth, times that were missed (and the
  memory for calls that waited) are reported but not judged.
- **Calls in standstills**: a thread on each processor sleeps for a millisecond at a time.
  When one sleeps for 5 ms or more, calls that were in flight are left out of p99 and
  longest, because no program could use the processor.
- **Times without a bound** are reported and not judged. The longest time of a call is judged
  where Redis gives no answer (F2, F3).
- **Charges of one call** are read by another daemon, whose connection to Redis works. It peeks
  at keys that were used once.
- **Memory, threads and files** (which include connections) are the greatest among the daemons.
- **Not carried out** (F12): a caller that sends on an idle connection while that is being closed
  gets a 408 (HTTP/1.1), a GOAWAY (HTTP/2, gRPC) or an error that begins with LOADING (RESP,
  where it holds for all commands after it, too). GOAWAY is not counted: clients retry by
  themselves what was not processed. The Redis protocol has no message that asks a client to
  disconnect, so every client that keeps sending gets the error; one that was silent for a second
  does not, and may lose what it sends at that time. What was answered with such an error must not
  be in Redis, and what was admitted must be.
- **Limits of two versions** (F13): a request is decided by the rules of one version of
  the file: which policies there are, and what is off, in shadow or overridden. Rates and
  bursts are changed in the store, one policy after the other and before the rules
  follow, so that usage is kept. A batch may run in between, and a single answer may have the new
  limit in its body and the old one in its headers. The test does not truncate files before it
  writes them.
- **Slow clients** (F16): at most half of a daemon's connections may be unproven: without an
  authenticated request or, where no token is needed, without a complete one. The oldest of
  these make way for others. The rest has 5 s for its head and 8 s for its body.

## How it is done

Unless a row says otherwise there are three daemons as ` + "`weir serve --redis …`" + ` starts
them: consistency exact, ` + "`--on-error local`" + `, and the policy that each daemon has without a
configuration, 100 per second with a burst B of 100 for each key. A client in one process
calls them in turn, 600 times a second whether answers come or not, which takes about a
third of two cores. Two of its twenty keys are hot: they are used 200 times a second, twice
their limit. The client records when it sent each request and when it received the response.

Every row also has to show that

- all answers are decisions: no status other than 200, and no connection that breaks,
- where counts are shared, they are shared again afterwards: what one daemon takes, the next
  refuses.

F12 has callers of all protocols, about a hundred and fifty of them: HTTP/1.1 with
JSON, Connect over HTTP/1.1 and HTTP/2, gRPC, Envoy's rate limit service and the Redis
protocol with pipelines; some wait for their turn in the daemon (` + "`max_wait_ms`" + `), and some call so
seldom that their connection counts as idle. They do not retry.

F23 uses one key only, 300 times a second, so that all units whose outcome is unknown
are that key's. F24 and F27 have two daemons, a configuration file, and 1 s for an answer of
Redis, so that a busy machine does not look like an outage.

F17 and F18 have no daemon: callers, a gateway route and the provider are in one process, with real
sockets between them.

F13, F15, F16, F16b, F20, F26 and F28 have one daemon, which counts in memory and has a configuration
file with the same policy and, where the row needs them, others.

Clocks (F14) are tested on nodes in one process, each made of the parts of a daemon,
since a Go program reads the system's clock without the C library and faketime does not
affect it. A daemon's own clock never steps back: it is the wall clock at the start of the
process, monotonic from then on, and follows steps of the wall clock forward only. So only
the clock of the store can step back.

The wall clock of a daemon (F28) is faked by building it with a standard library whose
time.Now adds the offset in a file to the wall clock. The monotonic clock is not changed, as
when a machine's clock is set, or when the machine is suspended.

The workers of F29 are in one process, too: each has a budget.Account over the parts of a daemon. One caller of
each does urgent work at 100 units per second, the others do as much as they can. A call reserves 10 units
for at most a second, takes 20 ms and gives back what it has not used. What a worker's share granted is
charged when Redis answers again; what is given back after that is not.

## Rows

Written by ` + "`make faults`" + `; do not edit.

| | |
|---|---|
| Date | %s |
| Machine | %s |

`
