package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/lease"
)

// A server is a redis-server of one measurement, empty at first, with a connection to ask what it has spent.
type server struct {
	*redisproc.Server
	admin   *redis.Client
	version string
}

func startServer(ctx context.Context) (*server, error) {
	process, err := redisproc.Start(ctx, nil)
	if err != nil {
		return nil, err
	}
	s := &server{Server: process, admin: redis.NewClient(&redis.Options{Addr: process.Addr(), PoolSize: 1})}
	info, err := s.info(ctx, "server")
	if err == nil {
		s.version = info["redis_version"]
		for _, one := range lease.Scripts() { // so that each call is one EVALSHA
			err = errors.Join(err, s.admin.ScriptLoad(ctx, one.Source()).Err())
		}
		err = errors.Join(err, s.loadControls(ctx))
	}
	if err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	return s, nil
}

func (s *server) stop(ctx context.Context) error {
	return errors.Join(s.admin.Close(), s.Stop(context.WithoutCancel(ctx)))
}

// info reads one section.
func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.admin.Info(ctx, section).Result()
	return parseInfo(text), err
}

// parseInfo reads the lines name:value of INFO.
func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\r"), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// number reads one number of INFO.
func (s *server) number(ctx context.Context, section, name string) (float64, error) {
	fields, err := s.info(ctx, section)
	if err != nil {
		return 0, err
	}
	value, err := strconv.ParseFloat(fields[name], 64)
	if err != nil {
		return 0, fmt.Errorf("INFO %s has %s:%q: want a number", section, name, fields[name])
	}
	return value, nil
}

// A commandStat is what a command has cost since the last reset.
type commandStat struct{ calls, usec int64 }

// scripts reads what all calls of scripts have cost.
func (s *server) scripts(ctx context.Context) (commandStat, error) {
	fields, err := s.info(ctx, "commandstats")
	if err != nil {
		return commandStat{}, err
	}
	line, ok := fields["cmdstat_evalsha"]
	if !ok {
		return commandStat{}, nil // none since the last reset
	}
	return parseCommandStat(line)
}

// parseCommandStat reads a value like calls=2,usec=31,usec_per_call=15.50.
func parseCommandStat(value string) (commandStat, error) {
	parts := map[string]string{}
	for part := range strings.SplitSeq(value, ",") {
		name, number, _ := strings.Cut(part, "=")
		parts[name] = number
	}
	calls, err1 := strconv.ParseInt(parts["calls"], 10, 64)
	usec, err2 := strconv.ParseInt(parts["usec"], 10, 64)
	if err1 != nil || err2 != nil {
		return commandStat{}, fmt.Errorf("INFO commandstats has %q: want calls=…,usec=…", value)
	}
	return commandStat{calls, usec}, nil
}
