package connectapi

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// sink takes an answer and keeps the status.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(status int)      { s.status = status }

// BenchmarkCheck is one check through the handler, without a network.
func BenchmarkCheck(b *testing.B) {
	binary, err := proto.Marshal(&weirv1.CheckRequest{Policy: "default", Key: "alice", Cost: proto.Int64(0)})
	must(b, err)
	for _, bb := range []struct {
		name, kind string
		body       []byte
	}{
		{"json", "application/json", []byte(`{"policy":"default","key":"alice","cost":0}`)},
		{"binary", "application/proto", binary},
		{"grpc", "application/grpc", append([]byte{0, 0, 0, 0, byte(len(binary))}, binary...)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			w := newWorld(b, nil)
			header := http.Header{"Content-Type": {bb.kind}, "Content-Length": {"1"}}
			b.ReportAllocs()
			for b.Loop() {
				w.records = w.records[:0]
				r, err := http.NewRequest("POST", w.path+"Check", io.NopCloser(bytes.NewReader(bb.body)))
				if err != nil {
					b.Fatal(err)
				}
				r.Header = header
				out := &sink{header: http.Header{}, status: 200}
				if w.handler.ServeHTTP(out, r); out.status != 200 || out.header.Get("Grpc-Status") > "0" {
					b.Fatal(out)
				}
			}
		})
	}
}
