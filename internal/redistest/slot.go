package redistest

import "strings"

const slotCount = 16384

// slotOf returns the slot of a key: CRC16 of its hash tag, or of all of it.
func slotOf(key string) int {
	return int(crc16(hashTag(key))) % slotCount
}

// hashTag returns what stands between the first { and the next }, if anything does.
func hashTag(key string) string {
	_, after, ok := strings.Cut(key, "{")
	if !ok {
		return key
	}
	tag, _, ok := strings.Cut(after, "}")
	if !ok || tag == "" {
		return key
	}
	return tag
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, nothing reflected, start at 0. Of
// "123456789" it is 0x31C3.
func crc16(s string) (crc uint16) {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			high := crc & 0x8000
			crc <<= 1
			if high != 0 {
				crc ^= 0x1021
			}
		}
	}
	return crc
}
