// Package wire knows how a lock is spelled in Redis: the names of its key and
// its channel, and the cluster slot that they share. The spelling is that of
// Redisson (docs/redisson.md), character for character, so that both exclude
// and wake each other.
package wire

import (
	"fmt"
	"strings"
)

// channelPrefix is put before a lock's name to make its unlock channel; the
// double underscore is Redisson's.
const channelPrefix = "redisson_lock__channel"

// ReleasedMessage is the payload that a release publishes. Redisson decodes
// payloads on lock channels as integers: nothing else may ever be published.
const ReleasedMessage = "0"

// Channel returns the channel on which the release of the lock with this key
// is published. A key without a brace is wrapped in braces, so that key and
// channel share a cluster slot; a key with one is taken as it is.
func Channel(key string) string {
	if strings.Contains(key, "{") {
		return channelPrefix + ":" + key
	}
	return channelPrefix + ":{" + key + "}"
}

// CheckCluster returns an error for a key that a cluster would keep on another
// slot than its channel: such a lock could be acquired and never released.
func CheckCluster(key string) error {
	if hashTag(key) == hashTag(Channel(key)) {
		return nil
	}
	return fmt.Errorf("key %q and its channel %q fall into different cluster slots; use a name whose braces "+
		"are either absent or hold a non-empty tag, as in %q", key, Channel(key), "app:{42}:job")
}

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// Slot returns the cluster slot of a key: CRC16 of its hash tag, as the Redis
// Cluster specification defines it.
func Slot(key string) int {
	return int(crc16(hashTag(key))) % slots
}

// hashTag returns the part of a key that decides its slot: what stands between
// the first '{' and the first '}' after it, or the whole key if that is empty
// or missing.
func hashTag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	if !found {
		return key
	}
	tag, _, closed := strings.Cut(rest, "}")
	if !closed || tag == "" {
		return key
	}
	return tag
}

// crc16 is CRC-16/XMODEM (polynomial 0x1021, initial value 0), the variant that
// the Redis Cluster specification names. It runs once per lock of a cluster
// client, so it needs no table.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
