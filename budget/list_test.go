package budget

import "testing"

func TestIsList(t *testing.T) {
	for text, want := range map[string]bool{
		`"burst";r=50;t=30`: true, `burst;r=50, day;r=1`: true, `"v"`: true,
		``: false, `limit=10, remaining=1`: false, `10`: false, `"v";r=`: false, "\"a\x01\"": false, `<script>`: false,
	} {
		if IsList([]string{text}) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	if !IsList([]string{`"a";r=1`, `"b";r=2`}) || IsList(nil) {
		t.Error("several lines are one list, and none is none")
	}
}
