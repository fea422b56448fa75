package redisconn

import "testing"

func TestSlot(t *testing.T) {
	tests := []struct {
		key  string
		want uint16
	}{
		{"123456789", 0x31C3}, // the check value of CRC-16/XMODEM
		{"", 0},
		{"{123456789}abc", 0x31C3},
		{"abc{123456789}{def}", 0x31C3},
		{"{user1000}.following", Slot("user1000")},
		{"foo{{bar}}zap", Slot("{bar")},
	}
	for _, tt := range tests {
		if got := Slot(tt.key); got != tt.want {
			t.Errorf("Slot(%q) = %d, want %d", tt.key, got, tt.want)
		}
	}
	if Slot("foo{}{bar}") == Slot("bar") {
		t.Error("an empty tag counts")
	}
	if Slot("foo") >= Slots {
		t.Error("it is no slot")
	}
}
