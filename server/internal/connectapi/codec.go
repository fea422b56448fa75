package connectapi

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec is JSON for people who know /v1. Connect's own says maxWaitMs, leaves out
// what is false, 0 or "", so that a refusal would lose its "allowed", and skips fields
// that it does not know, so that a misspelt cost would be 1.
type jsonCodec struct{ name string }

var _ connect.Codec = jsonCodec{}

var (
	writeJSON = protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
	readJSON  = protojson.UnmarshalOptions{}
)

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend is what connect calls if it is there: its buffers are used again.
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
		return brief(plain(err))
	}
	return nil
}

// plain returns the text of protojson's error, without the prefix whose space is at
// random one that does not break.
func plain(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}

func notProto(message any) error { return fmt.Errorf("%T is no protobuf message", message) }
