package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/redisproc"
)

// A server is a redis-server of one measurement, and a connection to ask it what it has spent.
type server struct {
	*redisproc.Server
	admin   *redis.Client
	version string
}

// startServer starts an empty server; aof switches the append-only file on, synced every second.
func startServer(ctx context.Context, aof bool) (*server, error) {
	o := &redisproc.Options{}
	if aof {
		o.AppendOnly, o.AppendFsync = true, "everysec"
	}
	process, err := redisproc.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &server{Server: process, admin: redis.NewClient(&redis.Options{Addr: process.Addr(), PoolSize: 1})}
	info, err := s.info(ctx, "server")
	if err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	s.version = info["redis_version"]
	return s, nil
}

func (s *server) stop(ctx context.Context) error {
	return errors.Join(s.admin.Close(), s.Stop(context.WithoutCancel(ctx)))
}

// info reads one section.
func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.admin.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// numbers reads fields of one section.
func (s *server) numbers(ctx context.Context, section string, names ...string) ([]float64, error) {
	fields, err := s.info(ctx, section)
	if err != nil {
		return nil, err
	}
	values := make([]float64, len(names))
	for i, name := range names {
		if values[i], err = strconv.ParseFloat(fields[name], 64); err != nil {
			return nil, fmt.Errorf("INFO %s has %s:%q: want a number", section, name, fields[name])
		}
	}
	return values, nil
}

// A serverUsage is what a server has spent since its start.
type serverUsage struct {
	cpu      float64 // seconds
	requests float64 // reads of its sockets: one for each request that is sent by itself
	in, out  float64 // bytes
}

func (s *server) usage(ctx context.Context) (serverUsage, error) {
	cpu, err := s.numbers(ctx, "cpu", "used_cpu_user", "used_cpu_sys")
	if err != nil {
		return serverUsage{}, err
	}
	stats, err := s.numbers(ctx, "stats", "total_reads_processed", "total_net_input_bytes", "total_net_output_bytes")
	if err != nil {
		return serverUsage{}, err
	}
	return serverUsage{cpu: cpu[0] + cpu[1], requests: stats[0], in: stats[1], out: stats[2]}, nil
}

// memory is what the server has allocated, once only this program's own connection is left.
func (s *server) memory(ctx context.Context) (float64, error) {
	for {
		clients, err := s.numbers(ctx, "clients", "connected_clients")
		if err != nil {
			return 0, err
		}
		if clients[0] <= 1 {
			break
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
	used, err := s.numbers(ctx, "memory", "used_memory")
	if err != nil {
		return 0, err
	}
	return used[0], nil
}
