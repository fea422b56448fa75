package redisconn

import "github.com/redis/rueidis"

// Slots is the number of slots of a Cluster.
const Slots = 16384

// Slot returns the slot of a key in a Cluster, from 0 to Slots-1: CRC16 of what stands
// between the first { and the next }, or of the whole key.
func Slot(key string) uint16 {
	c := rueidis.Completed{}.SetSlot(key)
	return c.Slot()
}
