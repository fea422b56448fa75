package measure

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	picture := stalledReport().SVG()
	if file := os.Getenv("WEIR_PICTURE"); file != "" { // to look at it
		if err := os.WriteFile(file, picture, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	checkXML(t, picture)
	for _, want := range []string{"<title", "<desc", "prefers-color-scheme: dark", "response p99", "service p99", "cost=&lt;1&gt;"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
	for _, bad := range []string{"<script", "href", "url(", "NaN", "Inf"} {
		if strings.Contains(string(picture), bad) {
			t.Errorf("%q is in the picture", bad)
		}
	}
}

// Each curve has a gap where nothing ended: two pieces around the stall.
func TestCurvesHaveGaps(t *testing.T) {
	paths := regexp.MustCompile(`<path class="(?:response|service)[^"]*" d="([^"]*)"`).FindAllStringSubmatch(string(stalledReport().SVG()), -1)
	if len(paths) != 4 {
		t.Fatalf("%d curves, want 4", len(paths))
	}
	for _, p := range paths {
		if n := strings.Count(p[1], "M"); n != 2 {
			t.Errorf("%d pieces, want 2: %s", n, p[1])
		}
	}
}

func TestShorten(t *testing.T) {
	if got := shorten("http://äöü", 9); got != "http://ä…" {
		t.Errorf("shorten = %q", got)
	}
}

// checkXML reads all of a file.
func checkXML(t *testing.T, file []byte) {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(file))
	for {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, file)
		}
	}
}
