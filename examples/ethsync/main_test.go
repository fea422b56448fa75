package main

import (
	"strings"
	"testing"
)

func TestUnknownCommandIsNamed(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string
	}{{"", "a command is missing\n"}, {"snyc -for 1s", "there is no command \"snyc\"\n"}, {"-h", ""}} {
		if got := misused(strings.Fields(tt.args)); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.args, got, tt.want)
		}
	}
}
