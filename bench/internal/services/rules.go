package services

// The rules, in terms that weir and ratelimit share. plenty admits every call and scarce
// one for each key; a year is long enough that no survey sees another.
const (
	plenty = "plenty"
	scarce = "scarce"
	domain = "bench"

	descriptors = `descriptors: [
      {key: plenty, rate_limit: {unit: year, requests_per_unit: 4000000000}},
      {key: scarce, rate_limit: {unit: year, requests_per_unit: 1}}]
`
	ratelimitRules = "domain: bench\n" + descriptors
)

// The configuration of weir. It waits for Redis for up to 3 s instead of 10 ms, because loops that
// never stop keep everything else from a processor for longer, and an answer that it gave
// without Redis would be no decision: it is to fail instead.
const (
	weirRules = `policies:
  plenty: {limits: [{rate: 1000000, per: 1s, burst: 1000000}]}
  scarce: {limits: [{rate: 1, per: year}]}
envoy:
  - domain: bench
    ` + descriptors

	weirRedis = `store:
  kind: redis
  redis: {addrs: ["%s"], prefix: bench-%s, consistency: %s, timeout: 3s, on_error: closed}
`
)
