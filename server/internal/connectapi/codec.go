package connectapi

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/server/internal/call"
)

// jsonCodec encodes JSON as /v1 does. Connect's own codec uses lowerCamelCase (maxWaitMs), omits
// zero values, so that a refusal would lose its "allowed", and ignores unknown fields, so that a
// misspelled cost would be 1.
type jsonCodec struct{ name string }

var _ connect.Codec = jsonCodec{}

var (
	writeJSON = protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
	readJSON  = protojson.UnmarshalOptions{}
)

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend is optional; connect calls it to reuse its buffers.
func (c jsonCodec) MarshalAppend(b []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, notProto(message)
	}
	return writeJSON.MarshalAppend(b, m)
}

func (c jsonCodec) Unmarshal(text []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return notProto(message)
	}
	if len(text) == 0 {
		return errors.New("the body is empty: a request is a JSON object, at least {}")
	}
	if err := readJSON.Unmarshal(text, m); err != nil {
		return errors.New(call.Invalid("%s", plain(err)).Text())
	}
	return nil
}

// plain returns the text of protojson's error without its prefix, which at random contains a
// non-breaking space.
func plain(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}

func notProto(message any) error { return fmt.Errorf("%T is no protobuf message", message) }
