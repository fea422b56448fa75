package redistest

import (
	"strconv"
	"testing"
)

func TestCRC16(t *testing.T) {
	if got := crc16("123456789"); got != 0x31C3 {
		t.Errorf("crc16 = %#x, want 0x31C3", got)
	}
}

// TestSlotOf compares with the server.
func TestSlotOf(t *testing.T) {
	t.Parallel()
	s := Start(t, Config("cluster-enabled", "yes"))
	keys := []string{"", "a", "foo", "{foo}", "x{foo}y", "{}", "{}{foo}", "{", "}", "}{", "{a", "{{a}}", "{a}{b}", "\x00\xff", "ä{ö}"}
	for _, key := range keys {
		want := s.MustDo("CLUSTER", "KEYSLOT", key).Text
		if got := strconv.Itoa(slotOf(key)); got != want {
			t.Errorf("slot of %q = %s, want %s", key, got, want)
		}
	}
}
