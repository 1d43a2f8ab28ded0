package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// safePolicy is the only one under which Redis never deletes a job.
const safePolicy = "noeviction"

// facts are what a server says of itself. What it does not tell, or not to this user, is "".
type facts struct {
	server, version string
	mode, role      string
	policy          string // maxmemory-policy
	policyErr       error  // why it is not known
	denied          error  // why it tells nothing
}

// look asks a server, or one node of several, who it is. An error means that there was no answer, or that the
// credentials were refused; a user who may not ask gets facts with nothing in them.
func look(ctx context.Context, rdb redis.UniversalClient) (facts, error) {
	text, err := rdb.Info(ctx).Result()
	if err != nil && !isReply(err) || redis.IsAuthError(err) || redis.IsLoadingError(err) {
		return facts{}, err
	}
	info := readInfo(text)
	f := facts{server: "redis", version: info["redis_version"], mode: info["redis_mode"], role: info["role"],
		policy: info["maxmemory_policy"], denied: err}
	if info["valkey_version"] != "" {
		f.server, f.version = "valkey", info["valkey_version"]
	}
	if f.policy == "" {
		f.policy, f.policyErr = askPolicy(ctx, rdb)
	}
	return f, nil
}

func askPolicy(ctx context.Context, rdb redis.UniversalClient) (string, error) {
	const name = "maxmemory-policy"
	got, err := rdb.ConfigGet(ctx, name).Result()
	if err != nil {
		return "", fmt.Errorf("neither INFO nor CONFIG tells: %w", err)
	}
	if got[name] == "" {
		return "", errors.New("neither INFO nor CONFIG tells")
	}
	return got[name], nil
}

// isReply reports whether err is what a server said, so that it is there.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// readInfo reads the answer of INFO: lines of name:value.
func readInfo(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// tooOld is true for a version below 6.2; one that is not known passes.
func (f *facts) tooOld() bool {
	parts := strings.SplitN(f.version, ".", 3)
	if f.server != "redis" || len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major < 6 || major == 6 && minor < 2)
}
