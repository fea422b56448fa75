package weirgrpc

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/rpclimit"
)

// stream is a stream that was admitted. It adds the fields to the header as late as possible: if
// the handler fails before it has sent anything, they are in the trailer.
type stream struct {
	grpc.ServerStream
	ctx        context.Context
	engine     *rpclimit.Engine
	call       *rpclimit.Call
	perMessage bool
	began      bool // a message was received

	header  sync.Once
	sent    atomic.Bool                      // the header may have been sent
	refused atomic.Pointer[rpclimit.Refusal] // set once a message was refused
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SendHeader(md metadata.MD) error {
	s.addFields()
	return s.ServerStream.SendHeader(md)
}

func (s *stream) SendMsg(message any) error {
	s.addFields()
	return s.ServerStream.SendMsg(message)
}

func (s *stream) addFields() {
	s.header.Do(func() {
		s.sent.Store(true)
		_ = s.SetHeader(fields(s.call.Response)) // an error means that the caller is gone
	})
}

// RecvMsg charges what it receives, but for the first message.
func (s *stream) RecvMsg(message any) error {
	if r := s.refused.Load(); r != nil {
		return errorOf(r)
	}
	if err := s.ServerStream.RecvMsg(message); err != nil || !s.perMessage {
		return err
	}
	if !s.began {
		s.began = true
		return nil
	}
	if r := s.engine.Message(s.call); r != nil {
		s.refused.Store(r)
		return errorOf(r)
	}
	return nil
}

// end returns the error of a stream: that of a refused message whatever the handler made of it.
func (s *stream) end(err error) error {
	if r := s.refused.Load(); r != nil {
		s.SetTrailer(trailer(r, nil))
		err = errorOf(r)
	}
	switch {
	case err == nil:
		s.addFields()
	case !s.sent.Load():
		s.SetTrailer(fields(s.call.Response))
	}
	return err
}
