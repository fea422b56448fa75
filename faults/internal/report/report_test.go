package report

import (
	"strings"
	"testing"
	"time"
)

func TestWriteMarkdown(t *testing.T) {
	t.Parallel()
	r := &Report{Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Machine: "an abacus"}
	late := r.Begin("F10", "it burns", "no ash")
	early := r.Begin("F2", "it rains | pours", "stay dry")
	flapping := r.Begin("flapping", "it wavers", "nothing")
	early.Add(Figure{Name: "water", Value: "0 l", Bound: "≤ 1 l", Met: true})
	early.Add(Figure{Name: "wind", Value: "3 m/s"})
	late.Add(Figure{Name: "ash", Value: "2 g", Bound: "≤ 1 g"})
	flapping.Add(Figure{Name: "wings", Value: "2"})
	var b strings.Builder
	if err := r.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	want := []string{
		"| Date | 2026-01-02 |",
		"| Machine | an abacus |",
		`| F2 | it rains \| pours | stay dry | water 0 l ≤ 1 l<br>wind 3 m/s | yes |`,
		"| F10 | it burns | no ash | ash 2 g ≤ 1 g (missed) | **no** |",
		"| flapping | it wavers | nothing | wings 2 | **no** |", // nothing was judged
	}
	at := 0
	for _, line := range want {
		i := strings.Index(page[at:], line)
		if i < 0 {
			t.Fatalf("%q is not in the page, or in another place:\n%s", line, page)
		}
		at += i
	}
}

func TestFailedRow(t *testing.T) {
	t.Parallel()
	row := (&Report{}).Begin("F1", "", "")
	row.Add(Figure{Bound: "≤ 1", Met: true})
	row.Fail()
	if got := row.markdown(); !strings.Contains(got, "**no**") {
		t.Errorf("a failed row reads %s", got)
	}
}

// What depends on the machine is not judged while others have it; all else is.
func TestBusyRow(t *testing.T) {
	t.Parallel()
	row := (&Report{}).Begin("F1", "", "")
	row.Add(Figure{Bound: "≤ 1", Met: true})
	row.Add(Figure{Bound: "≤ 1 ms", Time: true})
	if got := row.markdown(); !strings.Contains(got, "**no**") {
		t.Errorf("a row with a missed time reads %s", got)
	}
	row.Busy()
	if got := row.markdown(); !strings.Contains(got, "times not judged") {
		t.Errorf("on a busy machine it reads %s", got)
	}
	row.Add(Figure{Bound: "≤ 1"})
	if got := row.markdown(); !strings.Contains(got, "**no**") {
		t.Errorf("with a missed count it reads %s", got)
	}
}
