package pacer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir/pacer"
)

func Example() {
	ctx := context.Background()
	began := time.Now() // the first start is due from New on
	p, err := pacer.New(pacer.Config{Rate: 100})
	if err != nil {
		panic(err)
	}
	for range 51 {
		if _, err := p.Wait(ctx); err != nil {
			panic(err)
		}
	}
	fmt.Println(time.Since(began) >= 500*time.Millisecond)
	// Output: true
}

// A job that was interrupted for a while goes on a tenth faster until it has made
// up for it, or for one second of it.
func ExampleConfig_burst() {
	p, err := pacer.New(pacer.Config{Rate: 1000, Mode: pacer.Burst, BurstRatio: 1.1, MaxDebt: time.Second})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Config().Mode, p.Config().BurstRatio)
	// Output: burst 1.1
}

func ExamplePacer_SetRate() {
	p, err := pacer.New(pacer.Config{Rate: 10})
	if err != nil {
		panic(err)
	}
	if err := p.SetRate(0); err != nil {
		fmt.Println(err)
	}
	if err := p.SetRate(20); err != nil {
		panic(err)
	}
	fmt.Println(p.Config().Rate)
	// Output:
	// pacer: rate 0: want 1e-06 to 1e+10 per second
	// 20
}
