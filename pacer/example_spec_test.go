package pacer_test

import (
	"fmt"

	"github.com/weirlimit/weir/pacer"
)

func ExampleParseSpec() {
	spec, err := pacer.ParseSpec("20k, 1.25, restart")
	fmt.Println(spec.Rate, spec.Mode, spec.BurstRatio, spec.Verb, spec.Scope, err)
	fmt.Println(spec)

	_, err = pacer.ParseSpec("20k, 0.25")
	fmt.Println(err)
	// Output:
	// 20000 burst 1.25 restart activity <nil>
	// 20000,1.25,restart
	// pacer: spec "20k, 0.25": part 2, "0.25": want a burst ratio from 1 to 1000; the scale of strictness is written strictness=0.25
}

// Ten workers that go 100 times a second each, until somebody types another line.
func ExampleNewGroup() {
	spec, err := pacer.ParseSpec("100,thread")
	if err != nil {
		panic(err)
	}
	group, err := pacer.NewGroup(spec)
	if err != nil {
		panic(err)
	}
	worker := group.Join()
	defer group.Leave(worker)
	fmt.Println(worker.Config().Rate)

	typed, _ := pacer.ParseSpec("250,1,thread")
	fmt.Println(group.Apply(typed))
	fmt.Println(worker.Config().Rate, worker.Config().Mode)
	// Output:
	// 100
	// <nil>
	// 250 strict
}
