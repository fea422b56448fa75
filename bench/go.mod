module github.com/weirlimit/weir/bench

go 1.26.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/juju/ratelimit v1.0.2
	github.com/weirlimit/weir v0.0.0
	go.uber.org/ratelimit v0.3.1
	golang.org/x/time v0.16.0
)

require (
	github.com/benbjohnson/clock v1.3.0 // indirect
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/kr/text v0.2.0 // indirect
)

replace github.com/weirlimit/weir => ../
