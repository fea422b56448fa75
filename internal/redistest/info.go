package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Info returns a section of INFO, field by field.
func (s *Server) Info(section string) map[string]string {
	s.t.Helper()
	fields, err := s.info(commandTimeout, section)
	if err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	return fields
}

// UsedMemory returns the bytes that the server has allocated.
func (s *Server) UsedMemory() int64 {
	s.t.Helper()
	return s.number(s.Info("memory")["used_memory"])
}

// CommandCalls returns how often the server has executed a command since it was
// started, for example "evalsha" or "config|get". Calls by the helper itself count:
// AUTH, PING, INFO, and whatever Do is used for. Calls inside a script count, too.
func (s *Server) CommandCalls(name string) int64 {
	s.t.Helper()
	stat, ok := s.Info("commandstats")["cmdstat_"+strings.ToLower(name)]
	if !ok {
		return 0
	}
	calls, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
	return s.number(calls)
}

func (s *Server) number(digits string) int64 {
	s.t.Helper()
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		s.t.Fatalf("redistest: INFO of %s: %v", s.Addr(), err)
	}
	return n
}

func (s *Server) info(limit time.Duration, section string) (map[string]string, error) {
	r, err := s.do(limit, "INFO", section)
	if err != nil {
		return nil, err
	}
	return fieldsOf(r.Text), nil
}

// fieldsOf reads lines of name:value.
func fieldsOf(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func (s *Server) hasRole(want string) error {
	fields, err := s.info(pollTimeout, "replication")
	if err != nil {
		return err
	}
	if fields["role"] != want {
		return fmt.Errorf("the role of %s is %s, not %s", s.Addr(), fields["role"], want)
	}
	return nil
}

// replicates says what keeps s from being a replica of primary that is in sync.
func (s *Server) replicates(primary *Server) error {
	fields, err := s.info(pollTimeout, "replication")
	if err != nil {
		return err
	}
	if fields["master_port"] != strconv.Itoa(primary.Port()) || fields["master_link_status"] != "up" {
		return fmt.Errorf("%s says role %s, primary's port %q, link %q; want a replica of %s", s.Addr(),
			fields["role"], fields["master_port"], fields["master_link_status"], primary.Addr())
	}
	return nil
}

// WaitReplica waits until replica has everything that s, its primary, has executed so
// far. WAIT by Do would wait for nothing, as it speaks of its own connection's writes.
func (s *Server) WaitReplica(replica *Server) {
	s.t.Helper()
	want := s.number(s.Info("replication")["master_repl_offset"])
	await(s.t, "the replica "+replica.Addr()+" to catch up", commandTimeout, func() error {
		fields, err := replica.info(pollTimeout, "replication")
		if err != nil {
			return err
		}
		got, err := strconv.ParseInt(fields["slave_repl_offset"], 10, 64)
		if err != nil || got < want {
			return fmt.Errorf("it is at %q of %d", fields["slave_repl_offset"], want)
		}
		return nil
	})
}
