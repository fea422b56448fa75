package cli

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFollowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		calls := 0
		ctx, cancel := context.WithTimeout(t.Context(), 10*clockEvery+1)
		defer cancel()
		followClock(ctx, slog.New(slog.NewTextHandler(&text, nil)), func() time.Duration {
			if calls++; calls == 3 {
				return time.Hour
			}
			return 0
		})
		if calls != 10 {
			t.Errorf("looked %d times, want 10", calls)
		}
		if strings.Count(text.String(), "\n") != 1 || !strings.Contains(text.String(), "by=1h0m0s") {
			t.Errorf("log: %s", &text)
		}
	})
}
