package otlp

import (
	"regexp"
	"strings"
	"testing"
)

const (
	exampleTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	exampleSpan  = "00f067aa0ba902b7"
	example      = "00-" + exampleTrace + "-" + exampleSpan + "-01"
	unsampled    = "00-" + exampleTrace + "-" + exampleSpan + "-00"
)

func TestParseTraceparent(t *testing.T) {
	ids := exampleTrace + "-" + exampleSpan
	tests := []struct {
		name, header string
		want         string // "" if it is refused
	}{
		{"sampled", example, example},
		{"not sampled", unsampled, unsampled},
		{"other flags are ignored", "00-" + ids + "-ff", example},
		{"other flags without sampled", "00-" + ids + "-fe", unsampled},
		{"a version of the future", "01-" + ids + "-01", example},
		{"with more after it", "cc-" + ids + "-01-what the future brings", example},
		{"with nothing after the dash", "fe-" + ids + "-01-", example},

		{"nothing", "", ""},
		{"version 00 with more", example + "-more", ""},
		{"version 00 with a dash", example + "-", ""},
		{"a version of the future, without a dash", "01-" + ids + "-01x", ""},
		{"version ff", "ff-" + ids + "-01", ""},
		{"version not a number", "0x-" + ids + "-01", ""},
		{"version in capitals", "0A-" + ids + "-01", ""},
		{"too short", example[:54], ""},
		{"trace of zeros", "00-" + strings.Repeat("0", 32) + "-" + exampleSpan + "-01", ""},
		{"span of zeros", "00-" + exampleTrace + "-0000000000000000-01", ""},
		{"capitals in the trace", "00-" + strings.ToUpper(exampleTrace) + "-" + exampleSpan + "-01", ""},
		{"capitals in the span", "00-" + exampleTrace + "-" + strings.ToUpper(exampleSpan) + "-01", ""},
		{"not a digit in the trace", "00-g" + exampleTrace[1:] + "-" + exampleSpan + "-01", ""},
		{"not a digit in the flags", "00-" + ids + "-0x", ""},
		{"first dash", "00_" + ids + "-01", ""},
		{"second dash", "00-" + exampleTrace + "_" + exampleSpan + "-01", ""},
		{"third dash", "00-" + ids + "_01", ""},
		{"a dash in the trace", "00-" + exampleTrace[:31] + "-" + "-" + exampleSpan + "-01", ""},
		{"space before", " " + example, ""},
		{"space after", example + " ", ""},
		{"two headers in one", example + "," + example, ""},
		{"not ASCII", "00-" + exampleTrace[:30] + "é-" + exampleSpan + "-01", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseTraceparent(tt.header)
			switch {
			case err != nil && tt.want != "":
				t.Fatal(err)
			case err == nil && tt.want == "":
				t.Fatalf("taken for %v", got)
			case err == nil && got.String() != tt.want:
				t.Errorf("%v, want %s", got, tt.want)
			case err != nil && got != Traceparent{}:
				t.Errorf("%v with an error", got)
			}
		})
	}
}

// FuzzTraceparent compares the parser with an obvious one.
func FuzzTraceparent(f *testing.F) {
	for _, seed := range []string{
		example, unsampled, "", example + "-", "01" + example[2:] + "-x", "ff" + example[2:],
		strings.ToUpper(example), strings.ReplaceAll(example, "4", "0"), example[:54],
	} {
		f.Add(seed)
	}
	digits := `([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})`
	zeros := regexp.MustCompile(`^0*$`)
	obvious := regexp.MustCompile(`(?s)^` + digits + `(-.*)?$`)
	f.Fuzz(func(t *testing.T, header string) {
		m := obvious.FindStringSubmatch(header)
		ok := m != nil && m[1] != "ff" && (m[1] != "00" || m[5] == "") && !zeros.MatchString(m[2]) && !zeros.MatchString(m[3])
		p, err := ParseTraceparent(header)
		if (err == nil) != ok {
			t.Fatalf("%q: %v, %v; it is a traceparent: %v", header, p, err, ok)
		}
		if declines(header) && err == nil && p.Sampled {
			t.Fatalf("%q is sampled and declines", header)
		}
		if err != nil {
			return
		}
		if !p.Sampled && !declines(header) {
			t.Fatalf("%q is not sampled and does not decline", header)
		}
		text := p.String()
		if text[:2] != "00" || text[3:52] != header[3:52] {
			t.Fatalf("%q became %q", header, text)
		}
		if again, err := ParseTraceparent(text); err != nil || again != p {
			t.Fatalf("%q became %q, which is %v, %v", header, text, again, err)
		}
	})
}

func BenchmarkParseTraceparent(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseTraceparent(example); err != nil {
			b.Fatal(err)
		}
	}
}
