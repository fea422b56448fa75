package svg

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
)

// A picture with one of everything.
func TestDocument(t *testing.T) {
	d := New(300, 120, "One of everything", "For the golden file.", Style)
	d.Rect("page", 0.5, 0.5, 299, 119)
	d.Text("title", Start, 10, 24, "One of everything")
	d.Group("axis")
	d.Line("", 10, 100, 290, 100)
	d.EndGroup()
	var p Path
	p.LineTo(10, 90)
	p.LineTo(50.25, 40.04)
	p.Gap()
	p.LineTo(100, 60) // a dot
	p.Gap()
	p.Gap()
	p.LineTo(200, 60)
	p.LineTo(290, 30)
	d.Path("axis", p)
	d.Path("axis", Path{})
	d.Text("dim", End, 290, 116, "5 s")
	golden.Check(t, "testdata/document.svg", d.Bytes())
}

// Whatever the words and numbers are, what comes out is well-formed, and the words
// come back.
func TestEscaping(t *testing.T) {
	const nasty = `</text><script>alert("1")</script> & 'x' <!-- ]]>`
	d := New(10, 10, nasty, nasty, Style)
	d.Group(`a" onload="x`)
	d.Text(`"`, Middle, math.NaN(), math.Inf(1), nasty+"\x00\xff")
	d.Rect("<", math.Inf(-1), 0, -1, math.NaN())
	texts := decode(t, d.Bytes())
	if got := strings.Count(texts, nasty); got != 3 {
		t.Errorf("the words are there %d times, want 3: %q", got, texts)
	}
	for _, bad := range []string{"<script", "NaN", "Inf", `"-`, `onload="`} {
		if strings.Contains(string(d.Bytes()), bad) {
			t.Errorf("%q is in the picture:\n%s", bad, d.Bytes())
		}
	}
}

// Groups may be left open, or closed too often.
func TestGroups(t *testing.T) {
	d := New(10, 10, "t", "d", "")
	d.EndGroup()
	d.Group("a")
	d.Group("b")
	decode(t, d.Bytes())
	d.EndGroup()
	d.EndGroup()
	d.EndGroup()
	decode(t, d.Bytes())
}

func TestCoordinates(t *testing.T) {
	tests := []struct {
		f    float64
		want string
	}{
		{0, "0"},
		{1, "1"},
		{1.25, "1.3"},
		{-0.01, "0"},
		{-3.14, "-3.1"},
		{100, "100"},
		{1e6, "1000000"},
		{math.NaN(), "0"},
		{math.Inf(-1), "0"},
	}
	for _, tt := range tests {
		if got := coord(tt.f); got != tt.want {
			t.Errorf("coord(%v) = %q, want %q", tt.f, got, tt.want)
		}
	}
}

// decode reads all of an XML file and returns the text in it.
func decode(t *testing.T, file []byte) string {
	t.Helper()
	var texts strings.Builder
	dec := xml.NewDecoder(bytes.NewReader(file))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return texts.String()
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, file)
		}
		if text, ok := token.(xml.CharData); ok {
			texts.Write(text)
		}
	}
}
