package single

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/prepaid"
)

func weirAllow(s setting, goal float64) harness.Contender {
	return harness.Contender{Name: "weir Single.Allow", Goal: goal, New: func() (harness.Run, error) {
		l, err := s.weir()
		if err != nil {
			return nil, err
		}
		return func(n int) (admitted int) {
			for range n {
				if l.Allow() {
					admitted++
				}
			}
			return admitted
		}, nil
	}}
}

func weirTake(s setting, goal float64) harness.Contender {
	return harness.Contender{Name: "weir Single.Take", Goal: goal, New: func() (harness.Run, error) {
		l, err := s.weir()
		if err != nil {
			return nil, err
		}
		return takes(l), nil
	}}
}

func takes(l *weir.Single) harness.Run {
	return func(n int) (admitted int) {
		for range n {
			if l.Take(1).Allowed {
				admitted++
			}
		}
		return admitted
	}
}

func weirPrepaid(s setting, goal float64) harness.Contender {
	return harness.Contender{Name: "weir Prepaid.Allow", Goal: goal, New: func() (harness.Run, error) {
		l, err := prepaid.New(s.limit())
		if err != nil {
			return nil, err
		}
		return func(n int) (admitted int) {
			for range n {
				if l.Allow() {
					admitted++
				}
			}
			return admitted
		}, nil
	}}
}

func weirTwo(s setting) harness.Contender {
	return harness.Contender{Name: "weir Single.Take", New: func() (harness.Run, error) {
		l, err := weir.New(s.limit(), weir.Limit{Name: "daily", Rate: 1 << 40, Per: weir.Calendar(weir.Day, nil)})
		if err != nil {
			return nil, err
		}
		return takes(l), nil
	}}
}

func weirDual() harness.Contender {
	return harness.Contender{Name: "weir Single.Allow", New: func() (harness.Run, error) {
		l, err := weir.New(
			weir.Limit{Name: "second", Rate: 32_767, Per: weir.Every(time.Second), Algorithm: weir.DualWindow},
			weir.Limit{Name: "minute", Rate: 262_143, Per: weir.Every(time.Minute), Algorithm: weir.DualWindow},
		)
		if err != nil {
			return nil, err
		}
		return func(n int) (admitted int) {
			for range n {
				if l.Allow() {
					admitted++
				}
			}
			return admitted
		}, nil
	}}
}

func weirNow() harness.Contender {
	return harness.Contender{Name: "weir.Now", New: func() (harness.Run, error) {
		return func(n int) (positive int) {
			for range n {
				if weir.Now() > 0 {
					positive++
				}
			}
			return positive
		}, nil
	}}
}

// weir returns a limiter with the setting.
func (s setting) weir() (*weir.Single, error) {
	l, err := weir.New(s.limit())
	if err == nil && s.drained {
		l.Allow()
	}
	return l, err
}

func (s setting) limit() weir.Limit {
	if s.drained {
		return weir.Limit{Rate: 1, Per: weir.Every(time.Hour)}
	}
	return weir.Limit{Rate: s.rate, Per: weir.Every(time.Second), Burst: s.burst}
}
