package script

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

const maxHolder = 64 // bytes

// ValidateClient reports whether a client is one to work with: not nil, and, of the kinds that tell, with a ReadTimeout.
// Without one a connection that has died without a word is waited for without end, and nothing could ever be closed.
func ValidateClient(rdb redis.UniversalClient) error {
	missing, timeout := rdb == nil, time.Second
	switch c := rdb.(type) {
	case *redis.Client:
		if missing = c == nil; !missing {
			timeout = c.Options().ReadTimeout
		}
	case *redis.ClusterClient:
		if missing = c == nil; !missing {
			timeout = c.Options().ReadTimeout
		}
	}
	if missing {
		return errors.New("the Redis client is nil: want one made by redis.NewClient, NewFailoverClient or NewClusterClient")
	}
	if timeout <= 0 {
		return errors.New("the Redis client's ReadTimeout is switched off: want one, as the default of 3s; it bounds how long a dead connection is waited for")
	}
	return nil
}

// DefaultHolder is <host>/<pid>, cut to 64 bytes.
func DefaultHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	pid := fmt.Sprintf("/%d", os.Getpid())
	host = strings.ToValidUTF8(host, "?")
	for len(host)+len(pid) > maxHolder {
		_, size := utf8.DecodeLastRuneInString(host)
		host = host[:len(host)-size]
	}
	return host + pid
}

// ValidateHolder reports whether a readable name of a process is 1–64 bytes of valid UTF-8 without control characters.
func ValidateHolder(holder string) error {
	switch {
	case holder == "" || len(holder) > maxHolder:
		return fmt.Errorf("holder has %d bytes: want 1 to %d", len(holder), maxHolder)
	case !utf8.ValidString(holder) || strings.ContainsFunc(holder, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("holder %q: want valid UTF-8 without control characters", holder)
	}
	return nil
}
